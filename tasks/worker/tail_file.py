"""A file that keeps the end of what is written to it, in two segments of bounded size.

A full segment takes the place of the one before it. The segments are never longer together than
twice what is kept, and always hold it, also when the writer is killed.

Imports the standard library alone: see `output_keeper`.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from time import time

__all__ = ["KEPT_BYTES", "TailFile", "is_being_written", "read_tail", "remove_tail", "sweep_tails"]

KEPT_BYTES = 1_000_000
"""Bytes at the end that are kept."""
_LONGEST_LINE = 10_000
"""Bytes that are dropped at most for the end to begin with a whole line."""
_KEPT_SECONDS = 3_600
"""Seconds for which the file of a writer that ended may still be read."""


class TailFile:
    """The writer's side. The file is locked until it is closed, for readers that wait for its end.

    Args:
        path: Path of the file; text that another writer left there is continued.

    Raises:
        OSError: If it cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open()

    def write(self, data: bytes) -> None:
        """Append bytes.

        Raises:
            OSError: If they cannot be written, as on a full disk.
        """
        data = data[-KEPT_BYTES:]
        if os.fstat(self._file).st_size + len(data) > KEPT_BYTES:
            self._path.replace(_former(self._path))
            former = self._file
            self._open()
            os.close(former)  # only now, so that the lock is never missing
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._file)

    def _open(self) -> None:
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        with suppress(OSError):  # the lock is another writer's
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_tail(path: Path) -> tuple[bytes, bool]:
    """Return the end of what was written to a file, and whether more was written before.

    The end begins with a whole line where there is one. Without a file it is empty.
    """
    segments = []
    for segment in (_former(path), path):
        with suppress(OSError):
            segments.append(segment.read_bytes())
    data = b"".join(segments)
    # Bytes before the former segment may be gone.
    is_cut = len(data) > KEPT_BYTES
    data = data[-KEPT_BYTES:]
    return (data[data.find(b"\n", 0, _LONGEST_LINE) + 1 :] if is_cut else data), is_cut


def is_being_written(path: Path) -> bool:
    """Return whether a writer has the file open."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def remove_tail(path: Path) -> None:
    """Remove a file with its segments; its writer may go on, unread."""
    for segment in (path, _former(path)):
        with suppress(OSError):
            segment.unlink()


def sweep_tails(folder: Path, pattern: str) -> None:
    """Remove the files that no writer has open, and none has written to for an hour."""
    for path in folder.glob(pattern):
        with suppress(OSError):
            if time() - path.stat().st_mtime > _KEPT_SECONDS and not is_being_written(path):
                path.unlink()


def _former(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")
