"""Who uses the embedded server of a folder, known to the system even when a process is killed.

Each user holds a shared lock; whoever starts or stops the server holds another one meanwhile.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["exclusive", "is_kept", "is_unused", "private_file", "set_kept", "using"]

_KEPT = "kept"


@contextmanager
def using(folder: Path) -> Iterator[IO[str]]:
    """Open the lock of a folder's users, to be taken with `fcntl.flock`."""
    with private_file(folder / "users.lock") as users:
        yield users


@contextmanager
def exclusive(folder: Path, *, wait: bool = True) -> Iterator[bool]:
    """Keep others from starting or stopping the server of a folder in the body.

    Args:
        folder: Its folder.
        wait: Whether to wait for whoever does so now.

    Yields:
        Whether they are kept from it; always so after waiting.
    """
    with private_file(folder / "start.lock") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True


def is_unused(users: IO[str]) -> bool:
    """Return whether nobody uses the server, this process aside; take the lock if so."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_kept(folder: Path) -> bool:
    """Return whether the server is to stay when nobody uses it."""
    return (folder / _KEPT).exists()


def set_kept(folder: Path, *, kept: bool) -> None:
    """Let the server stay when nobody uses it, or no longer."""
    if kept:
        (folder / _KEPT).touch(mode=0o600)
    else:
        (folder / _KEPT).unlink(missing_ok=True)


def private_file(path: Path) -> IO[str]:
    """Open a file to write anew, which nobody else can read."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w")
