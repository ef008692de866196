"""Locks of the embedded server, and the secret that its API requires.

Each user holds a shared lock, which the system releases even for a killed process. Starting and
stopping take another lock. Each home has one secret, in a file that only its owner can read. The
secret is never printed, logged or passed in a command.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def users_file(folder: Path) -> IO[str]:
    """Open the file for the users' lock (`fcntl.flock`)."""
    return private_file(folder / "users.lock")


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock starting and stopping the server."""
    with private_file(folder / "start.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_unused(users: IO[str]) -> bool:
    """Return whether no other process uses the server; if so, acquire the lock."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def kept_file(folder: Path) -> Path:
    """Return the path of a file that keeps the server running when it is unused."""
    return folder / "kept"


def private_file(path: Path) -> IO[str]:
    """Open a new file for writing that only its owner can read."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w")


def secret_file(folder: Path) -> Path:
    """Return the path of the secret."""
    return folder / "auth"


def made_secret(folder: Path) -> str:
    """Return the secret for a new server; replace it if others could read its file."""
    file = secret_file(folder)
    if not file.exists() or file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        file.unlink(missing_ok=True)
        with private_file(file) as new:
            new.write(f"prefect-tune:{secrets.token_urlsafe(32)}\n")
    return read_secret(folder)


def read_secret(folder: Path) -> str:
    """Return the secret of the running server, as `user:password`."""
    return secret_file(folder).read_text().strip()
