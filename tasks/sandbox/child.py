"""The sandbox's side: a process that runs one call after another and reports on each call.

This module imports neither Prefect nor Dask. The data set, the split and the store stay loaded
between calls, in the caches of their loading functions. Reports are plain values and the only
connection between worker and sandbox; outside a sandbox, reports are dropped. Comparing the state
of the process before and after each call detects calls that damaged the process.
"""

import os
import pickle
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from select import POLLHUP, poll
from time import monotonic
from typing import Any

import psutil

from prefect_tune.optimizers.trials.outcome import StepCost
from prefect_tune.storage.notices import Notice, noticed_by
from prefect_tune.storage.waiting import OWN_THREAD, Waits
from prefect_tune.tasks.sandbox.output import buffer_lines, flush_streams
from prefect_tune.tasks.sandbox.process_tree import descendants, kill_below

LOST = 70
"""Exit code of a sandbox whose connection was closed by the worker or by a call."""


@dataclass(frozen=True, slots=True)
class StepBegun:
    """A step of a path begins; `is_served` tells whether all folds of the step are cached."""

    step: str
    algorithm: str
    is_served: bool


@dataclass(frozen=True, slots=True)
class StepDone:
    """The current step has run in all folds, or failed with a `problem`."""

    keys: tuple[str, ...] = ()
    n_cached: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class FoldReached:
    """The call has reached a step and fold; `costs` covers all finished steps and folds."""

    step: str
    fold: int
    costs: tuple[StepCost, ...]


@dataclass(frozen=True, slots=True)
class Loading:
    """Data and libraries are being loaded, which does not count toward the time of the call."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Data and libraries have been loaded, in `seconds` excluding waiting times."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Waited:
    """Seconds of waits for workers or stores, and the `monotonic` start of the current wait."""

    seconds: float
    since: float | None


@dataclass(frozen=True, slots=True)
class Noticed:
    """A warning for the user of the study."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Returned:
    """The value of a call, and the part of the process that the call damaged, if any."""

    value: Any
    damage: str


@dataclass(frozen=True, slots=True)
class Raised:
    """The error that ended a call."""

    error: Exception


Message = (
    StepBegun | StepDone | FoldReached | Loading | Loaded | Waited | Noticed | Returned | Raised
)


def _ignore(message: Message) -> None:
    """Drop a report, because the call runs outside a sandbox."""


_SEND: list[Callable[[Message], None]] = [_ignore]
"""Receivers of reports; only the last one is active. The process runs one call at a time."""


@contextmanager
def reporting_to(send: Callable[[Message], None]) -> Iterator[None]:
    """Send reports to a function during the body."""
    _SEND.append(send)
    try:
        yield
    finally:
        _SEND.pop()


def report(message: Message) -> None:
    """Send a report to the worker that waits for this call."""
    _SEND[-1](message)


def report_fold(step: str, fold: int, costs: Callable[[], Iterable[StepCost]] = tuple) -> None:
    """Report the step and fold that the call has reached, with all costs so far."""
    if _SEND[-1] is not _ignore:
        report(FoldReached(step, fold, tuple(costs())))


def report_waits(waits: Waits) -> None:
    """Report how long the call has waited for workers or stores, and whether it waits now."""
    report(Waited(waits.seconds, waits.since))


@contextmanager
def loading() -> Iterator[None]:
    """Report that the body loads data and libraries; the call's time starts afterwards."""
    report(Loading())
    started = monotonic()
    yield
    report(Loaded(monotonic() - started))


Function = Callable[..., Any]
_OURS = ("builtins", "prefect_tune.")
"""Modules whose errors the worker can unpickle."""


def begin(connection: int, output: int) -> None:
    """Turn this process into a sandbox: print to a file, run calls, end with the connection.

    The first message contains the worker's current folder, import path and environment.
    """
    with suppress(PermissionError):  # a fresh interpreter already leads its own session
        os.setsid()  # signals from the terminal must not reach calls
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (1, 2):
        os.dup2(output, number)
    os.close(output)
    buffer_lines()
    opened = Connection(connection)
    folder, sys.path[:], environment = pickle.loads(opened.recv_bytes())
    os.environ.clear()
    os.environ.update(environment)
    with suppress(OSError):  # the folder was deleted
        os.chdir(folder)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    _serve(opened)


def _end_with(connection: int) -> None:
    """End this process, with all processes it started, once the worker is gone."""
    hung_up = poll()
    hung_up.register(connection, POLLHUP)
    while not any(event & POLLHUP for _, event in hung_up.poll()):
        pass
    kill_below(os.getpid())
    os.killpg(0, signal.SIGKILL)


def _serve(connection: Connection) -> None:
    lock, here = threading.Lock(), os.getpid()

    def send(message: Message) -> None:
        if os.getpid() != here:  # a process forked by the call
            os._exit(1)
        with lock:
            connection.send_bytes(pickle.dumps(message))

    with noticed_by(lambda notice: send(Noticed(notice))):
        while True:
            try:
                received = connection.recv_bytes()
            except (EOFError, OSError):
                os._exit(LOST)
            ended = _run(received, send)
            flush_streams()
            try:
                if ended is not None:
                    send(ended)
            except OSError:
                os._exit(LOST)
            except Exception as error:  # the value cannot be pickled
                send(Raised(RuntimeError(f"the result cannot be sent: {error}")))


def _run(received: bytes, send: Callable[[Message], None]) -> Returned | Raised | None:
    before = surroundings()

    def reported(message: Message) -> None:
        nonlocal before
        if isinstance(message, Loaded):  # importing libraries may change the process
            before = surroundings()
        send(message)

    try:
        module, name, arguments, is_awaited = pickle.loads(received)
        function: Function = getattr(import_module(module), name)
        if not is_awaited:
            with suppress(Exception):  # the next call will raise the same error
                function(**arguments)
            return None
        with reporting_to(reported):
            value = function(**arguments)
    except Exception as error:
        return Raised(_readable(error))
    except BaseException as error:  # user code may raise anything
        return Raised(RuntimeError(f"{type(error).__name__}: {error}"))
    try:
        return Returned(value, damage(before, surroundings()))
    except (OSError, psutil.Error):  # no file descriptor is available
        return Returned(value, "open files")


def _readable(error: Exception) -> Exception:
    """Return an error that the worker can unpickle without the user's modules."""
    if type(error).__module__.startswith(_OURS):
        with suppress(Exception):
            pickle.loads(pickle.dumps(error))
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def request(function: Function, arguments: Mapping[str, Any], *, is_awaited: bool = True) -> bytes:
    """Return the bytes that make `_serve` call a module's function.

    A call that nobody awaits sends no reports, not even at the end.
    """
    return pickle.dumps((function.__module__, function.__name__, dict(arguments), is_awaited))


_MANY_FILES = 128
"""Number of open files above which a process is replaced; libraries keep some files open between
calls."""
_COUNTED = ("threads", "child processes")
_LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]


def surroundings() -> dict[str, Any]:
    """Return the parts of the process state that user code can change, by name."""
    folder = None
    with suppress(OSError):  # the folder was deleted
        folder = os.getcwd()  # noqa: PTH109 - Path.cwd() raises as well
    return {
        "current folder": folder,
        "environment": dict(os.environ),
        "import path": [*sys.path],
        "signal handlers": [signal.getsignal(number) for number in signal.valid_signals()],
        "resource limits": [resource.getrlimit(which) for which in _LIMITS],
        "recursion limit": sys.getrecursionlimit(),
        "standard streams": [_stream(sys.stdout), _stream(sys.stderr), *map(_file, (0, 1, 2))],
        "threads": sum(not t.name.startswith(OWN_THREAD) for t in threading.enumerate()),
        "child processes": len(descendants(os.getpid())),
        "many open files": psutil.Process().num_fds() > _MANY_FILES,
    }


def damage(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the name of the first difference between two states; empty if they are equal."""
    for name, value in now.items():
        if value > before[name] if name in _COUNTED else value != before[name]:
            return name
    return ""


def _stream(stream: Any) -> tuple[Any, bool]:
    return stream, getattr(stream, "closed", True)


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
