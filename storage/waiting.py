"""Outages of databases, buckets and folders: their causes, and waiting for their end.

Only an unreachable store may come back by itself. Full disks and permissions need a person; file
handles and memory belong to the process. One policy retries after growing random pauses of some
seconds, for five minutes at most. These waits do not count as a trial's time.

A signal must not interrupt an open transaction, which would block all other processes. Handlers
therefore call `is_put_off` first, which defers the error to the end of `deferred_signals`. Python
would otherwise raise it between any two instructions of the main thread.
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
    """Waits counted by `waits_counted`: total seconds, and `monotonic` start of the current one."""

    changed: Callable[["Waits"], None]
    seconds: float = 0.0
    since: float | None = None


_WAITS: ContextVar[Waits | None] = ContextVar("waits", default=None)


@contextmanager
def waits_counted(changed: Callable[[Waits], None] = lambda _: None) -> Iterator[None]:
    """Count the waits of the body; `changed` is called at the start and the end of each."""
    token = _WAITS.set(Waits(changed))
    try:
        yield
    finally:
        _WAITS.reset(token)


@dataclass(frozen=True, slots=True)
class Begun:
    """Start of a piece of work: the `monotonic` time, and the seconds waited before it."""

    at: float
    waited: float

    def own_seconds(self) -> float:
        """Return the seconds since the start, without waits."""
        waits = _WAITS.get()
        waited = 0.0 if waits is None else waits.seconds - self.waited
        return monotonic() - self.at - waited


def begin() -> Begun:
    """Return the present moment."""
    waits = _WAITS.get()
    return Begun(monotonic(), 0.0 if waits is None else waits.seconds)


@contextmanager
def waiting(since: Begun | None = None) -> Iterator[None]:
    """Count the time of the body as one wait; with `since`, the failed work before it, too."""
    waits = _WAITS.get()
    if waits is None or waits.since is not None:
        yield
        return
    since = since or begin()
    waits.seconds, waits.since = since.waited, since.at
    waits.changed(waits)
    try:
        yield
    finally:
        waits.seconds += monotonic() - since.at
        waits.since = None
        waits.changed(waits)


class _State:
    """Nesting of `deferred_signals` in the main thread, and interrupts deferred there."""

    depth = 0
    put_off: Callable[[], None] | None = None


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer signals during the body, in the main thread (the only one that gets signals)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _State.depth += 1
    try:
        yield
    finally:
        _State.depth -= 1
        _raise_put_off()


@contextmanager
def interruptible() -> Iterator[None]:
    """Allow signals in a body that may take long and is safe to interrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    depth, _State.depth = _State.depth, 0
    try:
        _raise_put_off()
        yield
    finally:
        _State.depth = depth


def is_put_off(interrupt: Callable[[], None]) -> bool:
    """Return whether an interrupt (a function that raises) is deferred."""
    if _State.depth == 0:
        return False
    _State.put_off = interrupt
    return True


def _raise_put_off() -> None:
    if _State.depth == 0 and _State.put_off is not None:
        interrupt, _State.put_off = _State.put_off, None
        interrupt()


class Cause(StrEnum):
    """Cause of a storage error."""

    AWAY = auto()
    FULL = auto()
    FORBIDDEN = auto()
    PROCESS = auto()


_BY_NAME = {
    Cause.AWAY: (
        "EIO", "ESTALE", "ENOTCONN", "EHOSTDOWN", "ETIMEDOUT", "EHOSTUNREACH", "ENETDOWN",
        "ENETUNREACH", "ENETRESET", "EREMOTEIO", "ENODEV", "ENXIO", "ESHUTDOWN", "ECONNABORTED",
        "ECONNREFUSED", "ECONNRESET", "ENOLINK", "ECOMM", "EAGAIN",
    ),
    Cause.FULL: ("ENOSPC", "EDQUOT"),
    Cause.FORBIDDEN: ("EROFS", "EACCES", "EPERM"),
    Cause.PROCESS: ("EMFILE", "ENFILE", "ENOMEM"),
}  # fmt: skip
_BY_ERRNO = {
    getattr(errno, name): cause
    for cause, names in _BY_NAME.items()
    for name in names
    if hasattr(errno, name)  # EREMOTEIO is missing on some systems
}
_BY_SQLITE_CODE = {
    sqlite3.SQLITE_FULL: Cause.FULL,
    sqlite3.SQLITE_PERM: Cause.FORBIDDEN,
    sqlite3.SQLITE_READONLY: Cause.FORBIDDEN,
    sqlite3.SQLITE_READONLY_DBMOVED: Cause.AWAY,
    sqlite3.SQLITE_NOMEM: Cause.PROCESS,
    sqlite3.SQLITE_IOERR_NOMEM: Cause.PROCESS,
    sqlite3.SQLITE_IOERR: Cause.AWAY,
    sqlite3.SQLITE_CANTOPEN: Cause.AWAY,
}
"""Causes by extended or primary result code; `SqliteFile.cause_of` resolves the last two."""
_POSTGRES_FULL = "53100"
_STATUS_FULL = 507
_CODES_FULL = {
    "EntityTooLargeForQuota", "InsufficientStorage", "QuotaExceeded", "QuotaExceededException",
    "StorageQuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull",
    "storageQuotaExceeded", "507",
}  # fmt: skip
"""Error codes of object stores without room."""


def cause_of(error: BaseException) -> Cause | None:
    """Return the cause of a storage error; None for others, such as a missing file."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's error
    if any(map(_says_full, _chain(error))):
        return Cause.FULL
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0)
        return _BY_SQLITE_CODE.get(code) or _BY_SQLITE_CODE.get(code & 0xFF)
    if isinstance(error, OSError):
        return _BY_ERRNO.get(error.errno or 0)
    return None


def _says_full(error: BaseException) -> bool:
    if getattr(error, "sqlstate", None) == _POSTGRES_FULL:
        return True
    response = getattr(error, "response", None)
    codes = [getattr(error, name, None) for name in ("code", "error_code", "status", "status_code")]
    if isinstance(response, dict):  # from botocore
        codes.append(response.get("Error", {}).get("Code"))
        codes.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    return any(
        code == _STATUS_FULL or (isinstance(code, str) and code in _CODES_FULL) for code in codes
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


class StoreLost(RuntimeError):  # noqa: N818 - the name states the event
    """Something every trial needs, such as the ledger, is lost; the run may be resumed later."""

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))


class DiskFull(StoreLost):
    """The store has no room left; waiting does not help."""


class StoreForbidden(StoreLost):
    """The store may no longer be read or written."""


class ProcessExhausted(RuntimeError):  # noqa: N818 - the name states the event
    """This process or machine has no file handles or memory left; the store is fine."""


def lost_for(cause: Cause, where: str, error: BaseException) -> StoreLost | ProcessExhausted:
    """Return the error to raise for a cause other than `Cause.AWAY`, naming the store."""
    why = _named(getattr(error, "orig", None) or error)
    if cause == Cause.FULL:
        return DiskFull(
            f"{where} has no room left ({why}); free space there, for example with `prefect-tune "
            "artifacts prune` or a smaller --cache-budget, or name another --store; the same "
            "command then resumes the study"
        )
    if cause == Cause.FORBIDDEN:
        return StoreForbidden(
            f"{where} can no longer be read or written ({why}); mount it writable or give this "
            "user access again; the same command then resumes the study"
        )
    return ProcessExhausted(
        f"process {os.getpid()} has no file handles or memory left ({why}); close files that an "
        "algorithm leaves open, or raise the limit with `ulimit -n`"
    )


def _named(error: BaseException) -> str:
    number = error.errno if isinstance(error, OSError) else None
    name = "" if number is None else f"{errno.errorcode.get(number, number)}: "
    return f"{name}{error}".split("\n", 1)[0]


OUTAGE_VARIABLE = "PREFECT_TUNE_OUTAGE_SECONDS"
"""Environment variable with the longest outage to wait for, in the flow and every worker."""
_OUTAGE_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0

_WAITED_OUT = "it was tried again for as long as an outage may last"

Result = TypeVar("Result")


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt during whose handling an error was raised; None without one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def outage_seconds() -> float:
    """Return the longest outage to wait for, in seconds."""
    return float(os.environ.get(OUTAGE_VARIABLE) or _OUTAGE_SECONDS)


def through_outage(
    call: Callable[[], Result], is_outage: Callable[[BaseException], bool], what: str = ""
) -> Result:
    """Make an idempotent call, repeating it during an outage; failed attempts count as waiting.

    A study gets one warning per address (`what`). After a long outage, the last error is raised.
    Other errors are raised at once, and so are outages that the call has already waited for. While
    this thread cleans up after an interrupt, it waits for no outage.
    """
    if interrupt_behind(sys.exception()) is not None:
        return call()

    def is_waited_out(error: BaseException) -> bool:
        notes = (getattr(one, "__notes__", ()) for one in _chain(error))
        return is_outage(error) and not any(_WAITED_OUT in some for some in notes)

    begun = begin()
    try:
        return call()
    except Exception as error:
        if not is_waited_out(error):
            raise
        why = masked(str(error).split("\n", 1)[0])
        warn("outage", f"waiting at most {outage_seconds():g} s: {why}", masked(what))
    from tenacity import (  # noqa: PLC0415 - needed only during an outage
        Retrying,
        retry_if_exception,
        stop_after_delay,
        wait_random_exponential,
    )

    def pause(seconds: float) -> None:
        with waiting(begun), interruptible():
            sleep(seconds)

    def again() -> Result:
        nonlocal begun
        begun = begin()
        return call()

    pause(_FIRST_PAUSE_SECONDS)
    try:
        return Retrying(
            retry=retry_if_exception(is_waited_out),
            wait=wait_random_exponential(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS),
            stop=stop_after_delay(outage_seconds()),
            sleep=pause,
            reraise=True,
        )(again)
    except Exception as error:
        if is_waited_out(error):
            error.add_note(_WAITED_OUT)
        raise


OWN_THREAD = "prefect-tune"
"""Beginning of the names of threads that a store keeps between calls."""
_STOP_SECONDS = 2.0
"""Longest time to wait for a beat under way; during an outage it may take minutes."""
_MOST_RETRY_SECONDS = 1.0
"""Pause after a failed beat; short, because a lease may be about to expire."""


class Heartbeat:
    """Repeats `beat` in a thread until stopped, and reports its errors once as an outage."""

    def __init__(self, name: str, beat: Callable[[], None], seconds: float, outage: str) -> None:
        self._beat, self._seconds, self._outage = beat, seconds, outage
        self._stop = threading.Event()
        name = f"{OWN_THREAD}: {name}"
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> None:
        """Start the thread; the first beat follows the first pause."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, usually after a beat under way."""
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
