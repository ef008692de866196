"""Outages of databases, buckets and folders: causes of errors, and waiting until a store answers.

Storage errors have three causes. An unreachable store may come back by itself, a full disk needs a
person's help, and a lack of file handles or memory concerns this process only. Errors with other
causes are raised unchanged. Calls to an unreachable store are repeated for at most five minutes,
after growing pauses of at most five seconds. Waiting does not count as a trial's time.

A signal must not interrupt an open transaction, because the transaction would block all other
processes. Python can run a signal handler between any two instructions of the main thread. A
handler that raises an error therefore calls `was_deferred` first, which defers the error to the end
of `deferred_signals`.
"""

import errno
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum, auto
from time import monotonic, sleep
from typing import TypeVar

from prefect_tune.storage.masking import masked
from prefect_tune.storage.notices import warn


@dataclass
class Waits:
    """Time spent waiting for other workers or an unreachable store, as counted by `waits_counted`.

    Attributes:
        changed: Function that is called at the start and the end of each wait.
        seconds: Total duration of all waits so far.
        since: Start of the current wait by `time.monotonic`; None outside a wait.
    """

    changed: Callable[["Waits"], None]
    seconds: float = 0.0
    since: float | None = None


_WAITS: ContextVar[Waits | None] = ContextVar("waits", default=None)


@contextmanager
def waits_counted(changed: Callable[[Waits], None] = lambda _: None) -> Iterator[None]:
    """Count waits in the `with` block. `changed` is called as each wait starts and ends."""
    token = _WAITS.set(Waits(changed))
    try:
        yield
    finally:
        _WAITS.reset(token)


class Stopwatch:
    """Measures the time since its creation, without waits for other workers or stores."""

    def __init__(self) -> None:
        self.since, self.waited = monotonic(), _waited_seconds()

    def seconds(self) -> float:
        """Return the measured time in seconds."""
        return monotonic() - self.since - (_waited_seconds() - self.waited)


def _waited_seconds() -> float:
    waits = _WAITS.get()
    return 0.0 if waits is None else waits.seconds


@contextmanager
def waiting(since: Stopwatch | None = None) -> Iterator[None]:
    """Count the `with` block as a wait that, if `since` is given, includes the time since then."""
    waits = _WAITS.get()
    if waits is None or waits.since is not None:
        yield
        return
    since = since or Stopwatch()
    waits.seconds, waits.since = since.waited, since.since
    waits.changed(waits)
    try:
        yield
    finally:
        waits.seconds += monotonic() - since.since
        waits.since = None
        waits.changed(waits)


class _State:
    """Whether signals are deferred in the main thread, and the interrupt that is `pending`."""

    is_deferred = False
    pending: Callable[[], None] | None = None


@contextmanager
def deferred_signals(*, is_deferred: bool = True) -> Iterator[None]:
    """Defer signals during the `with` block. In threads other than the main thread, do nothing.

    With `is_deferred=False`, allow signals in a block that may take long and is safe to interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former, _State.is_deferred = _State.is_deferred, is_deferred
    try:
        _raise_pending()
        yield
    finally:
        _State.is_deferred = former
        _raise_pending()


def was_deferred(interrupt: Callable[[], None]) -> bool:
    """Return whether signals are deferred; if they are, call `interrupt` (which raises) later."""
    if _State.is_deferred:
        _State.pending = interrupt
    return _State.is_deferred


def _raise_pending() -> None:
    if not _State.is_deferred and _State.pending is not None:
        interrupt, _State.pending = _State.pending, None
        interrupt()


class Cause(StrEnum):
    """Cause of a storage error: unreachable, no room left, or no file handles or memory left."""

    AWAY = auto()
    FULL = auto()
    PROCESS = auto()


_AWAY = (
    errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.EHOSTDOWN, errno.ETIMEDOUT, errno.EHOSTUNREACH,
    errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN,
    errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.ENOLINK, errno.EAGAIN,
)  # fmt: skip
_BY_ERRNO = {
    **dict.fromkeys(_AWAY, Cause.AWAY),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), Cause.FULL),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.ENOMEM), Cause.PROCESS),
}
_BY_SQLITE_CODE = {
    sqlite3.SQLITE_BUSY: Cause.AWAY,
    sqlite3.SQLITE_IOERR: Cause.AWAY,
    sqlite3.SQLITE_CANTOPEN: Cause.AWAY,
    sqlite3.SQLITE_PROTOCOL: Cause.AWAY,
    sqlite3.SQLITE_FULL: Cause.FULL,
    sqlite3.SQLITE_NOMEM: Cause.PROCESS,
}
"""Causes by SQLite's primary result code."""
_CODES_FULL = {
    "EntityTooLargeForQuota", "InsufficientStorage", "QuotaExceeded", "QuotaExceededException",
    "StorageQuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull",
    "storageQuotaExceeded", "507", "53100",
}  # fmt: skip
"""Error codes with which object stores, HTTP servers and PostgreSQL report a lack of room."""


def cause_of(error: BaseException) -> Cause | None:
    """Return the cause of a storage error; None for other errors, such as a missing file."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's error
    for one in _chain(error):
        names = ("code", "error_code", "status", "status_code", "sqlstate")
        codes = [getattr(one, name, None) for name in names]
        response = getattr(one, "response", None)
        if isinstance(response, dict):  # from botocore
            codes.append(response.get("Error", {}).get("Code"))
            codes.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
        if not _CODES_FULL.isdisjoint(map(str, codes)):
            return Cause.FULL
    if isinstance(error, sqlite3.Error):
        return _BY_SQLITE_CODE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
    return _BY_ERRNO.get(error.errno or 0) if isinstance(error, OSError) else None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


class StoreLost(RuntimeError):  # noqa: N818 - the name states the event
    """Storage that every trial needs, such as the ledger, is lost. The run may be resumed later."""

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))


class DiskFull(StoreLost):
    """The store has no room left. Waiting does not help."""


class ProcessExhausted(RuntimeError):  # noqa: N818 - the name states the event
    """This process has no file handles or memory left, or its handles were closed by other code.

    The store itself is unaffected.
    """


def lost_for(cause: Cause, where: str, error: BaseException) -> StoreLost | ProcessExhausted:
    """Return the error to raise for a cause other than `Cause.AWAY`. `where` names the store."""
    why = str(getattr(error, "orig", None) or error).split("\n", 1)[0]
    if cause == Cause.FULL:
        return DiskFull(
            f"{where} has no room left ({why}); free space there, for example with `prefect-tune "
            "artifacts prune` or a smaller --cache-budget, or name another --store; the same "
            "command then resumes the study"
        )
    return ProcessExhausted(
        f"process {os.getpid()} has no file handles or memory left ({why}); use fewer workers, "
        "close files that an algorithm leaves open, or raise the limit with `ulimit -n`"
    )


OUTAGE_VARIABLE = "PREFECT_TUNE_OUTAGE_SECONDS"
"""Environment variable with the longest outage to wait for, read by the flow and every worker."""
_OUTAGE_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0

_WAITED_OUT = f"prefect-tune retried until its time limit for outages; {OUTAGE_VARIABLE} sets it"

Result = TypeVar("Result")


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that was being handled when an error was raised, or None."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def retry_while_unreachable(
    call: Callable[[], Result], is_outage: Callable[[BaseException], bool], what: str = ""
) -> Result:
    """Make an idempotent call, and repeat the call until an outage has ended.

    Failed attempts count as waiting. A study gets one warning per address (`what`). If the outage
    lasts too long, the last error is raised. Errors that are not outages are raised at once, and so
    is the error of an outage that a nested call has already waited for. A thread that cleans up
    after an interrupt does not wait for outages.
    """
    if interrupt_behind(sys.exception()) is not None:
        return call()
    longest = float(os.environ.get(OUTAGE_VARIABLE) or _OUTAGE_SECONDS)
    pause, until = _FIRST_PAUSE_SECONDS, 0.0
    while True:
        stopwatch = Stopwatch()
        try:
            return call()
        except Exception as error:
            notes = [note for one in _chain(error) for note in getattr(one, "__notes__", ())]
            if not is_outage(error) or _WAITED_OUT in notes:
                raise
            if not until:
                until = monotonic() + longest
                why = str(error).split("\n", 1)[0]
                warn("outage", f"waiting at most {longest:g} s: {why}", what)
            elif monotonic() > until:
                error.add_note(_WAITED_OUT)
                raise
        with waiting(stopwatch), deferred_signals(is_deferred=False):
            sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


OWN_THREAD = "prefect-tune"
"""Beginning of the names of a store's background threads."""
_STOP_SECONDS = 2.0
"""Maximum wait for a running call of `beat`, which may take minutes during an outage."""
_MOST_RETRY_SECONDS = 1.0
"""Maximum pause after a failed beat. The pause is short because a lease may be about to expire."""


class Heartbeat:
    """Calls `beat` every `seconds` in a thread, until the heartbeat is stopped.

    If `beat` fails, the user gets one warning per outage. The warning begins with the text
    `outage`.
    """

    def __init__(self, name: str, beat: Callable[[], None], seconds: float, outage: str) -> None:
        self._beat, self._seconds, self._outage = beat, seconds, outage
        self._stop = threading.Event()
        name = f"{OWN_THREAD}: {name}"
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, after waiting briefly for a running call of `beat`."""
        self._stop.set()
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        pause, is_out = self._seconds, False
        while not self._stop.wait(pause):
            try:
                self._beat()
            except Exception as error:  # the thread must survive
                if not is_out:
                    warn("heartbeat", f"{self._outage}; retrying: {error}", self._outage)
                pause, is_out = min(self._seconds, _MOST_RETRY_SECONDS), True
            else:
                pause, is_out = self._seconds, False
