"""Signals that end a command: Ctrl-C, `kill`, a terminal that is closed.

The first one ends the study, which can be continued, and then all that was started for it. Another
one, a second later or more, ends the process at once, with what runs below it.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Timer
from time import monotonic

import psutil

from prefect_tune.storage.waiting import is_put_off

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""All but the last, where `nohup` has it ignored."""
_SAME_SECONDS = 1.0
"""Shells and service managers tell a process and its group, so that one end comes twice."""
_AGAIN_SECONDS = 0.01
_SHOW_CURSOR = "\x1b[?25h"


class EndedBySignal(KeyboardInterrupt):
    """A signal has come; what goes on is put back, so that it can be continued.

    Attributes:
        exit_code: What shells say of a process that the signal ended.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class _Handler:
    """Raises at the first signal, and ends the process at another one.

    Args:
        say: Called at once when the first has come; what follows takes some seconds.
    """

    def __init__(self, say: Callable[[], None]) -> None:
        self._say, self._since = say, 0.0
        self._is_said = False
        self._terminals = [fd for fd in (0, 1, 2) if _is_terminal(fd)]

    def __call__(self, number: int, _: object) -> None:
        if self._since == 0.0:
            self._since = monotonic()
            if number == signal.SIGHUP:
                # A write to a terminal that is gone would be an error each time.
                nowhere = os.open(os.devnull, os.O_RDWR)
                for terminal in self._terminals:
                    os.dup2(nowhere, terminal)
            if not self._is_said:
                self._is_said = True
                self._say()
            if not is_put_off(partial(_end, number)):
                _end(number)
            return
        if number != signal.SIGHUP and monotonic() - self._since > _SAME_SECONDS:
            self._end_at_once(number)

    def take(self) -> dict[int, object]:
        """Handle the signals from now on; return who did before."""
        ignored = {
            s for s in ENDING_SIGNALS[1:] if signal.getsignal(s) is signal.SIG_IGN
        }  # by `nohup`
        return {s: signal.signal(s, self) for s in ENDING_SIGNALS if s not in ignored}

    def raise_again(self, ignored: "sys.UnraisableHookArgs") -> None:
        """Raise once more what Python has ignored: it was raised while an object was let go."""
        error = ignored.exc_value
        if not isinstance(error, EndedBySignal):
            sys.__unraisablehook__(ignored)
            return
        self._since = 0.0
        Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), error.exit_code - 128)).start()

    def _end_at_once(self, number: int) -> None:
        """End what runs below this process, but for servers that others may use, and itself."""
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                if os.getsid(child.pid) == os.getsid(0):
                    child.kill()
        if 2 in self._terminals:
            sys.stderr.write(_SHOW_CURSOR)
            sys.stderr.flush()
        os._exit(128 + number)


def _end(number: int) -> None:
    raise EndedBySignal(number)


_CURRENT: list[_Handler] = []
"""The handler of the command that runs in this process."""


@contextmanager
def interrupts_taken(say: Callable[[], None]) -> Iterator[None]:
    """Raise `EndedBySignal` in the body when a signal comes; in the main thread.

    Args:
        say: Called at once when the first has come.
    """
    handler = _Handler(say)
    former, former_hook = handler.take(), sys.unraisablehook
    sys.unraisablehook = handler.raise_again
    _CURRENT.append(handler)
    try:
        yield
    finally:
        sys.unraisablehook = former_hook
        _CURRENT.remove(handler)
        for number, function in former.items():
            signal.signal(number, function)  # type: ignore[arg-type]


def retake_interrupts() -> None:
    """Handle signals again inside a flow run, where Prefect has put a handler in our place."""
    if _CURRENT:
        _CURRENT[-1].take()


def _is_terminal(descriptor: int) -> bool:
    with suppress(OSError):
        return os.isatty(descriptor)
    return False
