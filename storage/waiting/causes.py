"""Whose trouble an error is: a store that is away, full or forbidden, or the process that meets it.

Only a store that is away may come back by itself. Room and permissions need a person, and file
handles and memory belong to the process.
"""

import errno
import sqlite3
from collections.abc import Iterator
from enum import StrEnum, auto

__all__ = ["Cause", "cause_of"]


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
    "EntityTooLargeForQuota",
    "InsufficientStorage",
    "QuotaExceeded",
    "QuotaExceededException",
    "StorageQuotaExceeded",
    "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
    "storageQuotaExceeded",
}
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
        code == _STATUS_FULL or (isinstance(code, str) and code in {*_CODES_FULL, "507"})
        for code in codes
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__
