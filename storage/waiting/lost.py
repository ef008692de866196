"""Errors by which a store ends a run: waiting does not help, or has not helped."""

import errno
import os

from prefect_tune.storage.privacy.masking import masked
from prefect_tune.storage.waiting.causes import Cause

__all__ = ["DiskFull", "ProcessExhausted", "StoreForbidden", "StoreLost", "lost_for"]


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
