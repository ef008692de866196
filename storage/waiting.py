"""Outages of databases, buckets and folders: whose trouble an error is, and waiting for its end.

Only a store that is away may come back by itself; full disks and permissions need a person, and
file handles and memory belong to the process. One policy waits: again after random pauses that grow
to some seconds, for five minutes at most. The seconds of a wait are not the trial's own.

A signal must not break off an open transaction, which would keep all others waiting. Python raises
the error of a signal handler between any two instructions of the main thread, so a handler asks
`is_put_off` first; its error is then raised after the body of `uninterrupted`.

A `Heartbeat` repeats an action in a thread of its own, also after outages.
"""

import errno
import os
import sqlite3
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
    """How long the body of `waits_counted` has waited.

    Attributes:
        changed: Called when a wait begins and when it ends.
        seconds: The waits that have ended.
        since: When the present one began, by `monotonic`; None outside of waits.
    """

    changed: Callable[["Waits"], None]
    seconds: float = 0.0
    since: float | None = None


_WAITS: ContextVar[Waits | None] = ContextVar("waits", default=None)


@contextmanager
def waits_counted(changed: Callable[[Waits], None] = lambda _: None) -> Iterator[None]:
    """Count the waits of the body.

    Args:
        changed: Called, with what is counted, when a wait begins and when it ends.
    """
    token = _WAITS.set(Waits(changed))
    try:
        yield
    finally:
        _WAITS.reset(token)


@dataclass(frozen=True, slots=True)
class Begun:
    """The moment at which a piece of work began.

    Attributes:
        at: By `monotonic`.
        waited: Seconds waited before.
    """

    at: float
    waited: float

    def own_seconds(self) -> float:
        """Return the seconds since then that were not waits."""
        waits = _WAITS.get()
        waited = 0.0 if waits is None else waits.seconds - self.waited
        return monotonic() - self.at - waited


def begin() -> Begun:
    """Return this moment."""
    waits = _WAITS.get()
    return Begun(monotonic(), 0.0 if waits is None else waits.seconds)


@contextmanager
def waiting(since: Begun | None = None) -> Iterator[None]:
    """Count the time of the body as waiting; a wait inside of another one counts once.

    Args:
        since: An earlier moment, from which on all was in vain.
    """
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
    """How deep the main thread is inside of `uninterrupted`, and what was put off meanwhile."""

    depth = 0
    put_off: Callable[[], None] | None = None


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put off what signals raise until the body has ended; in the main thread, where they do."""
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
    """Let signals raise in the body, wherever it is: it may last long, and breaks off well."""
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
    """Return whether an interrupt, which raises when it is called, is called later.

    Args:
        interrupt: What to call then.
    """
    if _State.depth == 0:
        return False
    _State.put_off = interrupt
    return True


def _raise_put_off() -> None:
    if _State.depth == 0 and _State.put_off is not None:
        interrupt, _State.put_off = _State.put_off, None
        interrupt()


class Cause(StrEnum):
    """Whose trouble an error is."""

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
    if hasattr(errno, name)  # some systems lack EREMOTEIO
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
"""Causes by extended or primary result code; `SqliteFile.cause_of` looks behind the last two."""
_POSTGRES_FULL = "53100"
_STATUS_FULL = 507
_CODES_FULL = {
    "EntityTooLargeForQuota", "InsufficientStorage", "QuotaExceeded", "QuotaExceededException",
    "StorageQuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull",
    "storageQuotaExceeded", "507",
}  # fmt: skip
"""Error codes by which object stores say that there is no room."""


def cause_of(error: BaseException) -> Cause | None:
    """Return whose trouble an error of a file, a database driver or an object store is.

    Returns:
        The cause; None for errors of other kinds, such as a file that does not exist.
    """
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
    """Return whether a PostgreSQL server or an object store says that it has no room."""
    if getattr(error, "sqlstate", None) == _POSTGRES_FULL:
        return True
    response = getattr(error, "response", None)
    codes = [getattr(error, name, None) for name in ("code", "error_code", "status", "status_code")]
    if isinstance(response, dict):  # botocore's
        codes.append(response.get("Error", {}).get("Code"))
        codes.append(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    return any(
        code == _STATUS_FULL or (isinstance(code, str) and code in _CODES_FULL) for code in codes
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__


class StoreLost(RuntimeError):  # noqa: N818 - it says what happened
    """Something that no trial can do without is lost, as the ledger; the run may go on later."""

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))


class DiskFull(StoreLost):
    """The store has no room left; waiting does not make any."""


class StoreForbidden(StoreLost):
    """The store may not be read or written any more."""


class ProcessExhausted(RuntimeError):  # noqa: N818 - it says what happened
    """This process or its machine has no file handles or memory left; the store is all right."""


def lost_for(cause: Cause, where: str, error: BaseException) -> StoreLost | ProcessExhausted:
    """Return the error to raise for a cause that is not waited for.

    Args:
        cause: Whose trouble it is: all but `Cause.AWAY`.
        where: The store or database, for people.
        error: The error that a file, driver or object store has raised.
    """
    why = _named(getattr(error, "orig", None) or error)
    if cause == Cause.FULL:
        return DiskFull(
            f"{where} has no room left ({why}); free space there, for instance with `prefect-tune "
            "artifacts prune` or a smaller --cache-budget, or name another --store; the same "
            "command then resumes the study"
        )
    if cause == Cause.FORBIDDEN:
        return StoreForbidden(
            f"{where} may not be read or written any more ({why}); mount it writable or give this "
            "user access again; the same command then resumes the study"
        )
    return ProcessExhausted(
        f"process {os.getpid()} has no file handles or memory left ({why}); close the files that "
        "an algorithm leaves open, or raise the limit with `ulimit -n`"
    )


def _named(error: BaseException) -> str:
    """Return an error as text, with the name of its number."""
    number = error.errno if isinstance(error, OSError) else None
    name = "" if number is None else f"{errno.errorcode.get(number, number)}: "
    return f"{name}{error}".split("\n", 1)[0]


OUTAGE_VARIABLE = "PREFECT_TUNE_OUTAGE_SECONDS"
"""Environment variable of the longest outage that is waited out, for the flow and every worker."""
_OUTAGE_SECONDS = 300.0
_FIRST_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 5.0

_WAITED_OUT = "it was tried again for as long as an outage may last"

Result = TypeVar("Result")


def outage_seconds() -> float:
    """Return how long an outage is waited out at most."""
    return float(os.environ.get(OUTAGE_VARIABLE) or _OUTAGE_SECONDS)


def through_outage(
    call: Callable[[], Result], is_outage: Callable[[BaseException], bool], what: str = ""
) -> Result:
    """Call, and call again while an outage lasts; what was in vain counts as waiting.

    Args:
        call: What to do; doing it twice must be as good as once.
        is_outage: Whether an error is one.
        what: Address of what is called; a study warns once of each.

    Raises:
        Exception: The last error, if the outage lasts too long; any other error at once, and so one
            that was waited out inside of the call.
    """

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
    from tenacity import (  # noqa: PLC0415 - only when something is away
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


_MOST_RETRY_SECONDS = 1.0
"""Pause after a failed beat; it is short, as a lease may be about to expire."""


class Heartbeat:
    """Does something every few seconds, in a thread of its own, until it is stopped.

    Args:
        name: Name of the thread.
        beat: The action. Any error it raises is an outage: it is reported once, then retried.
        seconds: Seconds between two beats.
        outage: Beginning of the warning about an outage.
    """

    def __init__(self, name: str, beat: Callable[[], None], seconds: float, outage: str) -> None:
        self._beat, self._seconds, self._outage = beat, seconds, outage
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)

    def start(self) -> None:
        """Begin; the first beat comes after the first pause."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for a beat under way."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        pause, is_out = self._seconds, False
        while not self._stop.wait(pause):
            try:
                self._beat()
            except Exception as error:  # the thread must outlive it
                if not is_out:
                    warn(
                        "heartbeat", f"{self._outage}, and it is tried again: {error}", self._outage
                    )
                pause, is_out = min(self._seconds, _MOST_RETRY_SECONDS), True
            else:
                pause, is_out = self._seconds, False
