"""A file of fixed size for one short text, which another process reads at any moment.

Its blocks are allocated when it is made, so that a disk that fills up later cannot stop the text
from changing. There are two places, written in turn, each with a checksum: a half-written text is
never read, but the one before it.
"""

import errno
import fcntl
import os
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from time import time

__all__ = ["PLACE_BYTES", "NoteFile", "read_text", "sweep"]

PLACE_BYTES = 128 * 1024
"""Room for a text with its header."""
_KEPT_SECONDS = 3_600
"""How long the file of a killed writer may still be read."""
_HEADER = struct.Struct("<QLL")
"""Number of the text, its length in bytes, and the checksum of number and text."""


class NoteFile:
    """The writer's side.

    Args:
        path: Where to make it, in place of what is there.

    Raises:
        OSError: If it cannot be made, as on a full disk.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0
        path.unlink(missing_ok=True)
        self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)  # as long as this process lives: see `sweep`
        try:
            self._place(bytes(2 * PLACE_BYTES), 0)
            os.fsync(self._file)  # or blocks may be found only later
        except OSError:
            self.remove()
            raise

    def write(self, text: str) -> None:
        """Write a text in place of the former one.

        Raises:
            ValueError: If it is too long.
            OSError: If it cannot be written; the former text stays then.
        """
        content = text.encode()
        if len(content) > PLACE_BYTES - _HEADER.size:
            raise ValueError(f"{len(content)} bytes do not fit into {PLACE_BYTES}")
        number = self._number + 1
        header = _HEADER.pack(number, len(content), _checksum(number, content))
        self._place(header + content, number % 2 * PLACE_BYTES)
        self._number = number

    def remove(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # it was removed before
            os.close(self._file)
        self.path.unlink(missing_ok=True)

    def _place(self, content: bytes, offset: int) -> None:
        while content:
            written = os.pwrite(self._file, content, offset)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            content, offset = content[written:], offset + written


def read_text(path: Path) -> str | None:
    """Return the newest whole text of a file; None if there is no file, or none was written."""
    newest, text = 0, None
    with suppress(OSError), path.open("rb") as file:
        for place in range(2):
            file.seek(place * PLACE_BYTES)
            header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                continue
            number, length, checksum = _HEADER.unpack(header)
            content = file.read(min(length, PLACE_BYTES))
            if number > newest and _checksum(number, content) == checksum:
                newest, text = number, content.decode()
    return text


def sweep(folder: Path, pattern: str) -> None:
    """Remove the files of writers that were killed an hour ago or more."""
    for path in folder.glob(pattern):
        with suppress(OSError), path.open("rb") as file:
            if time() - os.fstat(file.fileno()).st_mtime > _KEPT_SECONDS:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _checksum(number: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(number.to_bytes(8, "little")))
