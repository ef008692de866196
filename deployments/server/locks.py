"""Locks on the embedded server of a folder, and the secret without which its API answers nobody.

Each user holds a shared lock, which the system takes back even from a killed process; starting and
stopping the server takes another lock. The secret is made once per home, in a file that only its
owner can read; it is never printed, logged or part of a command.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

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


def secret_file(folder: Path) -> Path:
    """Return the file of the secret of the server in a folder."""
    return folder / "auth"


def made_secret(folder: Path) -> str:
    """Return the secret for a server that starts; a new one where others could read the old."""
    file = secret_file(folder)
    if not file.exists() or file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        file.unlink(missing_ok=True)
        with private_file(file) as new:
            new.write(f"prefect-tune:{secrets.token_urlsafe(32)}\n")
    return read_secret(folder)


def read_secret(folder: Path) -> str:
    """Return the secret of the server that runs in a folder, as `user:password`."""
    return secret_file(folder).read_text().strip()
