"""Signals that end a command: Ctrl-C, `kill`, or a closed terminal.

The first signal ends the study and all processes that the study has started. The study can be
resumed. Another signal, at least a second later, ends the process and its children at once. A study
in a separate thread, as in a notebook, calls `check_interrupted` whenever the study waits.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from threading import Event, Timer, current_thread, main_thread
from time import monotonic

import psutil

from prefect_tune.storage.waiting import was_deferred

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that are handled. SIGHUP is not handled if `nohup` has switched it off."""
_SAME_SECONDS = 1.0
"""Window in which repeated signals count as one, because shells signal a process and its group."""
_AGAIN_SECONDS = 0.01
"""Pause before a signal is sent again, because its error was lost."""
_SHOW_CURSOR = "\x1b[?25h"


INTERRUPTED: ContextVar[Event | None] = ContextVar("interrupted", default=None)
"""Event that is set when the thread that waits for the study of this context is interrupted."""


def check_interrupted() -> None:
    """Raise `KeyboardInterrupt` if the thread that waits for the study was interrupted."""
    interrupted = INTERRUPTED.get()
    if interrupted is not None and interrupted.is_set():
        raise KeyboardInterrupt


class EndedBySignal(KeyboardInterrupt):
    """A signal has ended the command. Running trials are requeued."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class _Handler:
    """Signal handler. The first signal raises `EndedBySignal`; a later one ends the process."""

    def __init__(self, say: Callable[[], None]) -> None:
        self._say, self._since = say, 0.0
        self._is_announced = False
        self._terminals = [fd for fd in (0, 1, 2) if _is_terminal(fd)]

    def __call__(self, number: int, _: object) -> None:
        if self._since == 0.0:
            self._since = monotonic()
            if number == signal.SIGHUP:
                # Writing to a closed terminal would raise an error.
                nowhere = os.open(os.devnull, os.O_RDWR)
                for terminal in self._terminals:
                    os.dup2(nowhere, terminal)
            if not self._is_announced:
                self._is_announced = True
                self._say()
            if not was_deferred(partial(_end, number)):
                _end(number)
            return
        if number != signal.SIGHUP and monotonic() - self._since > _SAME_SECONDS:
            self._end_at_once(number)

    def take(self) -> dict[int, object]:
        """Install the handler for all signals; return the previous handlers."""
        ignored = {
            s for s in ENDING_SIGNALS[1:] if signal.getsignal(s) is signal.SIG_IGN
        }  # ignored, for example by `nohup`
        return {s: signal.signal(s, self) for s in ENDING_SIGNALS if s not in ignored}

    def raise_again(self, ignored: "sys.UnraisableHookArgs") -> None:
        """Raise again an error that Python ignored because the error came from a finalizer."""
        error = ignored.exc_value
        if not isinstance(error, EndedBySignal):
            sys.__unraisablehook__(ignored)
            return
        self._since = 0.0
        Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), error.exit_code - 128)).start()

    def _end_at_once(self, number: int) -> None:
        """End this process and its children, except for servers that other processes may use."""
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
"""Handler of the command running in this process."""


@contextmanager
def interrupts_taken(say: Callable[[], None]) -> Iterator[None]:
    """In the main thread, call `say` and raise `EndedBySignal` if a signal arrives."""
    handler = _Handler(say)
    former, former_hook = handler.take(), sys.unraisablehook
    sys.unraisablehook = handler.raise_again
    _CURRENT.append(handler)
    try:
        yield
    finally:
        _CURRENT.remove(handler)
        sys.unraisablehook = former_hook
        for number, function in former.items():
            signal.signal(number, function)  # type: ignore[arg-type]


def retake_interrupts() -> None:
    """Install the handler again inside a flow run, because Prefect has replaced the handler."""
    if _CURRENT and current_thread() is main_thread():
        _CURRENT[-1].take()


def _is_terminal(descriptor: int) -> bool:
    with suppress(OSError):
        return os.isatty(descriptor)
    return False
