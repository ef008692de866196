"""Memory-mapped files, and copies of a remote store's files on this host.

Processes that map the same file share the memory pages. Files are hashed by reading rather than
through the map, so hashing leaves no pages in a process's memory. Copies of remote files are stored
in the user's private cache folder and named by digest. A copy is hashed whenever it is opened, and
downloaded again if its digest differs from its name.
"""

import fcntl
import mmap
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from prefect_tune.storage.keys import file_digest
from prefect_tune.storage.local_files import make_private
from prefect_tune.storage.notices import warn

Mapped = tuple[bytes | memoryview, str]
"""Bytes of a file, and the digest of the bytes."""

_COPY, _PARTIAL = ".arrow", ".part"


def mapped(path: str | Path) -> Mapped:
    """Map a local file read-only; return its bytes and their digest."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - paths of fsspec are strings
        found = file_digest(file)
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), found
        except ValueError:  # an empty file cannot be mapped
            return b"", found


class HostCopies:
    """Copies of a remote store's files, shared by all processes of a user on this host."""

    def __init__(self, store_id: str) -> None:
        self.folder = user_cache_path("prefect-tune") / "data" / store_id

    def obtain(self, digest: str, download: Callable[[Path], object]) -> Mapped | None:
        """Return a file from its copy on this host. If no copy exists, one process makes the copy.

        `download` writes the store's file to a path. If the store's file is damaged, the returned
        digest differs from `digest`. Returns None if the host cannot store copies.
        """
        if (found := self._find(digest)) is not None:
            return found
        if (lock := self._lock()) is None:
            return None
        with lock:
            if (found := self._find(digest)) is not None:
                return found
            partial = self._path(digest).with_suffix(_PARTIAL)
            try:
                partial.unlink(missing_ok=True)  # left by a killed process
                download(partial)
                found = mapped(partial)
                if found[1] == digest:
                    partial.replace(self._path(digest))
                return found
            finally:
                partial.unlink(missing_ok=True)

    def remove(self, digests: Collection[str]) -> None:
        """Remove copies of files. Processes that have mapped a copy can still read its bytes."""
        for digest in digests:
            with suppress(OSError):
                self._path(digest).unlink()

    def sweep(self, known: Collection[str]) -> None:
        """Remove copies whose digest is not in `known`, and partial copies of killed processes."""
        if not self.folder.is_dir() or (lock := self._lock()) is None:
            return
        with lock:
            self.remove({path.stem for path in self.folder.glob(f"*{_COPY}")} - {*known})
            for path in self.folder.glob(f"*{_PARTIAL}"):
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}{_COPY}"

    def _find(self, digest: str) -> Mapped | None:
        with suppress(OSError):
            found = mapped(self._path(digest))
            if found[1] == digest:
                return found
        return None

    def _lock(self) -> BinaryIO | None:
        """Lock the folder; return the file that holds the lock, or None in a read-only folder."""
        try:
            make_private(self.folder.parent)
            make_private(self.folder)
            file = (self.folder / "lock").open("ab")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            text = f"every process keeps its own copy of the data in memory: {error}"
            warn("no host copies", f"{text}; set XDG_CACHE_HOME to a writable folder")
            return None
        return file
