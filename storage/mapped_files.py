"""Files that processes map into memory, and copies of a remote store's files on this host.

The processes that map a file share its bytes in the page cache. A file is hashed as it is read, not
through the map, so a process that only loads the file holds none of its pages.

The copies of a remote store's files are below the user's cache folder, where only the user can
enter. A copy is named by its digest and hashed whenever it is opened. If the hash differs, the file
is downloaded again.
"""

import fcntl
import mmap
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from platformdirs import user_cache_path

from prefect_tune.storage.key import file_digest
from prefect_tune.storage.local_files import make_private
from prefect_tune.storage.notices import warn

Mapped = tuple[bytes | memoryview, str]
"""Bytes of a file and their digest."""

_COPY, _PARTIAL = ".arrow", ".part"


def mapped(path: str | Path) -> Mapped:
    """Return the bytes of a local file, mapped read-only, and their digest.

    Raises:
        OSError: If the file cannot be read.
    """
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - fsspec's paths are strings
        found = file_digest(file)
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), found
        except ValueError:  # an empty file cannot be mapped
            return b"", found


class HostCopies:
    """Copies of a remote store's files, shared by the processes of one user on this host.

    Args:
        store_id: Id of the store.
    """

    def __init__(self, store_id: str) -> None:
        self.folder = user_cache_path("prefect-tune") / "data" / store_id

    def obtain(
        self, digest: str, needed_bytes: int, download: Callable[[Path], object]
    ) -> Mapped | None:
        """Return a file from its copy. One process makes a missing copy while others wait.

        Args:
            digest: Digest of the file.
            needed_bytes: Free space that making a copy needs.
            download: Writes the file to a path.

        Returns:
            The bytes of the file with their digest, which differs if the store's file is damaged;
            None if there is no place for copies.
        """
        if (found := self._find(digest)) is not None:
            return found
        lock = self._lock(needed_bytes)
        if lock is None:
            return None
        with lock:
            return self._find(digest) or self._make(digest, download)

    def remove(self, digests: Collection[str]) -> None:
        """Remove copies; processes that have mapped them keep their bytes."""
        for digest in digests:
            with suppress(OSError):
                self._path(digest).unlink()

    def sweep(self, known: Collection[str]) -> None:
        """Remove copies that the store no longer has, and what killed processes left.

        Args:
            known: Digests of the store's files.
        """
        if not self.folder.is_dir():
            return
        lock = self._lock(0)
        if lock is None:
            return
        with lock:
            self.remove({path.stem for path in self.folder.glob(f"*{_COPY}")} - {*known})
            for path in self.folder.glob(f"*{_PARTIAL}"):
                path.unlink(missing_ok=True)

    def size_bytes(self) -> int:
        """Return the bytes of all copies together."""
        total = 0
        for path in self.folder.glob(f"*{_COPY}"):
            with suppress(FileNotFoundError):
                total += path.stat().st_size
        return total

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}{_COPY}"

    def _find(self, digest: str) -> Mapped | None:
        """Return a copy; None if there is none, or if it is damaged."""
        with suppress(OSError):
            found = mapped(self._path(digest))
            if found[1] == digest:
                return found
        return None

    def _make(self, digest: str, download: Callable[[Path], object]) -> Mapped:
        """Download a file, and keep it if its digest is right."""
        partial = self._path(digest).with_suffix(_PARTIAL)
        try:
            partial.unlink(missing_ok=True)  # of a process that was killed
            download(partial)
            found = mapped(partial)
            if found[1] == digest:
                partial.replace(self._path(digest))
            return found
        finally:
            partial.unlink(missing_ok=True)

    def _lock(self, needed_bytes: int) -> BinaryIO | None:
        """Return a file whose closing releases the lock on the folder; None without a place."""
        try:
            make_private(self.folder.parent)
            make_private(self.folder)
            file = (self.folder / "lock").open("ab")
            fcntl.flock(file, fcntl.LOCK_EX)
            free_bytes = shutil.disk_usage(self.folder).free
        except OSError as error:
            why = str(error)
        else:
            if free_bytes >= needed_bytes:
                return file
            file.close()
            why = f"{self.folder} has {free_bytes / 1e9:.2f} GB left"
        warn(
            "no host copies",
            "processes on this host cannot share the data of a remote store, and each holds all of "
            f"it in memory: {why}; make room there, or set XDG_CACHE_HOME to another folder",
        )
        return None
