"""Folders of encoded files under an fsspec URL, each folder published as a whole.

A publication is a new folder, called its place, inside the folder of an artifact or record. Files
are never replaced. Readers see a complete publication or none, and deleting a publication never
affects the next publication.
"""

import errno
import hmac
import json
import posixpath
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import uuid4

import fsspec
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import get_protocol

from prefect_tune.storage.codec import encode, is_mapped, sign, signing_key
from prefect_tune.storage.host_copies import HostCopies, mapped
from prefect_tune.storage.keys import digest
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import (
    Cause,
    DiskFull,
    ProcessExhausted,
    StoreLost,
    cause_of,
    lost_for,
    retry_while_unreachable,
)

FREE_BYTES_KEPT = 1000**3
"""Disk space that cache and records leave free, because the ledger needs it."""

CLAIM_FILE = "store.json"
"""File at the root of a store with the store's id."""

RECORDS = "records"
"""Area of records. The folder is created with the store and never recreated."""

_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "s3": {"config_kwargs": {"retries": {"mode": "standard", "total_max_attempts": 1}}}
}
"""Filesystem options by protocol. Retries are turned off, because `storage.waiting` retries."""
_TEMPORARY = "tmp"
"""Area for unfinished publications."""
_CLIENTS = {"botocore", "aiobotocore", "aiohttp", "azure", "gcsfs", "google", "httpx", "requests"}
"""Libraries behind fsspec whose errors are not always `OSError`."""


class Damaged(Exception):  # noqa: N818 - the name states the fault
    """A file is missing, or its bytes differ from the bytes that were written."""

    def __init__(self, message: str, *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class StoreRefused(ValueError):  # noqa: N818 - the name states the event
    """The store cannot be used as requested. The message gives the reason and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))


class StoreAway(StoreRefused):
    """The store does not answer now, but may do so later."""


class FilesLost(StoreLost):
    """The folder or bucket of a store does not answer."""


RAISED = (FilesLost, DiskFull, ProcessExhausted)
"""Errors that fail a trial. After any other error, the trial's result is just not stored."""

Answer = TypeVar("Answer")

EncodedParts = Mapping[str, tuple["Part", bytes | memoryview]]
"""Part descriptions and bytes, by name."""


@dataclass(frozen=True, slots=True)
class Part:
    """Description of one file of an artifact or record.

    Attributes:
        file: Path of the file, relative to the folder of the artifact or record.
        digest: Digest of the bytes (see `keys.digest`).
        codec: Name of the codec that decodes the bytes.
        signature: HMAC of a pickle; empty if no signing key is set.
    """

    file: str
    digest: str
    size_bytes: int
    codec: str
    signature: str = ""


def new_place() -> str:
    """Return a new folder name that no other publication has."""
    return uuid4().hex[:16]


def place_of(parts: Mapping[str, Part]) -> str:
    """Return the name of the folder that contains published parts."""
    return next(iter(parts.values())).file.split("/", 1)[0]


class Files:
    """Folders of encoded files under a URL, each folder published as a whole."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            options = _OPTIONS.get(get_protocol(url), {})
            self.filesystem, self.root = fsspec.core.url_to_fs(url, **options)
        except Exception as error:  # any class: filesystems are third-party libraries
            raise StoreRefused(f"the store {url} cannot be opened: {error}") from error
        self.is_local = isinstance(self.filesystem, LocalFileSystem)
        self._answered = True
        self._store_id = ""
        self.copies: HostCopies | None = None

    def belong_to(self, store_id: str) -> None:
        """Use a local folder only as long as the folder holds the claim of this store."""
        self._store_id = store_id
        if not self.is_local and get_protocol(self.url) != "memory":
            self.copies = HostCopies(store_id)

    def path(self, *names: str) -> str:
        """Return the path of `names` below the store's root."""
        return posixpath.join(self.root, *names)

    def encode(
        self,
        folder: str,
        parts: Mapping[str, Any],
        about: Mapping[str, Any] = MappingProxyType({}),
        *,
        mappable: bool = False,
    ) -> EncodedParts:
        """Encode canonical values, so that `publish` can write the bytes to a folder."""
        encoded: dict[str, tuple[Part, bytes | memoryview]] = {}
        for name, value in parts.items():
            e = encode(value, about, mappable=mappable)
            part = Part(name + e.suffix, digest(e.data), len(e.data), e.codec)
            encoded[name] = self.signed(folder, name, part, e.data), e.data
        return encoded

    def signed(self, folder: str, name: str, part: Part, data: bytes | memoryview) -> Part:
        """Return a part with its signature, which is empty unless `data` is a signed pickle."""
        key = signing_key()
        is_signed = key is not None and part.codec == "pickle"
        signature = sign(key, f"{folder}/{name}", data) if key and is_signed else ""
        return replace(part, signature=signature)

    def publish(
        self,
        folder: str,
        place: str,
        encoded: EncodedParts,
        extra_files: Mapping[str, bytes] = MappingProxyType({}),
        *,
        private: bool = False,
    ) -> dict[str, Part]:
        """Write all parts and `extra_files` to a new folder `place` inside `folder`, or nothing.

        `encoded` comes from `encode`. If `private` is true, only the owner can read local files.
        Returns descriptions of the parts, with paths that include `place`.
        """
        target = Path(self.path(folder, place))
        temporary = Path(self.path(_TEMPORARY, place))
        files = {part.file: data for part, data in encoded.values()} | dict(extra_files)

        def move_in() -> None:
            self._check_there()
            area = Path(self.path(RECORDS))
            if self._store_id and target.is_relative_to(area) and not area.is_dir():
                raise FileNotFoundError(f"{area} is gone")  # all records are gone as well
            if target.is_dir():  # an earlier attempt moved the folder, but the answer was lost
                return
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            try:
                for name, data in files.items():
                    (temporary / name).touch(0o600 if private else 0o666)
                    (temporary / name).write_bytes(data)
                while not target.is_dir():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    try:
                        temporary.rename(target)
                    except FileNotFoundError:  # another process has just deleted an empty folder
                        if not temporary.exists():
                            raise
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise

        if self.is_local:
            self._reach(move_in)
        else:  # readers learn the folder's name only after all files are written
            remote = {self.path(folder, place, name): bytes(data) for name, data in files.items()}
            self._call("pipe", remote)
        return {
            name: replace(part, file=f"{place}/{part.file}") for name, (part, _) in encoded.items()
        }

    def read(
        self, folder: str, name: str, part: Part, *, from_copy: bool = False
    ) -> bytes | memoryview:
        """Return the verified bytes of a part. Local files other than pickles are memory-mapped.

        If `from_copy` is true, a copy on this host may replace a remote file. Raises Damaged if the
        file is missing, if its digest differs from the index, or if a signing key is set and a
        pickle has no valid signature.
        """
        path, found = self.path(folder, part.file), None
        try:
            if from_copy and self.copies is not None and is_mapped(part.codec):
                with suppress(DiskFull):  # on the disk that holds the copies
                    found = self.copies.obtain(
                        part.digest, lambda copy: self._call("get_file", path, str(copy))
                    )
            if found is None and self.is_local and part.codec != "pickle":
                found = self._reach(partial(mapped, path))
            elif found is None:  # not mapped: a mapped pickle could change after the check
                fetched = self._call("cat_file", path)
                found = fetched, digest(fetched)
        except FileNotFoundError as error:
            raise Damaged(f"{path} is missing", is_missing=True) from error
        data, its_digest = found
        if len(data) != part.size_bytes or its_digest != part.digest:
            raise Damaged(f"{path} is damaged: its digest differs from the index")
        key = signing_key()
        if key is not None and part.codec == "pickle":
            expected = sign(key, f"{folder}/{name}", data)
            if not hmac.compare_digest(expected, part.signature):
                state = "not signed with the signing key" if part.signature else "not signed"
                raise Damaged(f"{path} is {state}, so the file is not loaded")
        return data

    def size_bytes(self, folder: str, part: Part) -> int:
        """Return the size of a part's file; raises FileNotFoundError if the file is missing."""
        return int(self._call("size", self.path(folder, part.file)))

    def clear(self, folder: str, place: str) -> None:
        """Delete the files of a complete or incomplete publication."""
        if self.is_local:
            # Keep the parent folder, because another process may be about to write to it.
            self._remove(self.path(_TEMPORARY, place))
        self.delete(f"{folder}/{place}")

    def delete(self, folder: str) -> None:
        """Delete a folder, and any parent folders in the same area that become empty."""
        path = self.path(folder)
        if self.is_local:
            self._remove(path)
            with suppress(OSError):
                for above in list(Path(folder).parents)[:-2]:
                    Path(self.path(str(above))).rmdir()
        elif self._call("exists", path):
            self._call("rm", path, recursive=True)

    def _remove(self, path: str) -> None:
        """Delete a local folder. If the store itself is present, a missing folder is no error."""
        with suppress(FileNotFoundError):
            self._reach(partial(shutil.rmtree, path))

    def delete_parts(self, publications: Mapping[str, Mapping[str, Part]]) -> None:
        """Delete publications, given as parts by folder; a remote store gets only one request."""
        parts = [(folder, part) for folder, some in publications.items() for part in some.values()]
        if self.copies is not None:
            self.copies.remove([part.digest for _, part in parts])
        if self.is_local:
            for folder, some in publications.items():
                self.delete(f"{folder}/{place_of(some)}")
        elif parts:
            with suppress(FileNotFoundError):
                self._call("rm", [self.path(folder, part.file) for folder, part in parts])

    def _call(self, operation: str, *arguments: Any, **options: Any) -> Any:
        return self._reach(partial(getattr(self.filesystem, operation), *arguments, **options))

    def _reach(self, call: Callable[[], Answer]) -> Answer:
        """Make an idempotent call, and repeat the call until an outage has ended.

        Raises:
            FilesLost: If an outage lasts too long.
            FileNotFoundError: If the store is reachable, but a file is missing.
            DiskFull, ProcessExhausted: If the disk is full, or memory or file handles are used up.
        """

        def attempt() -> Answer:
            try:
                return call()
            except (FileNotFoundError, NotADirectoryError):
                if not self.is_local:
                    raise
                self._check_there()
            return call()

        try:
            answer = retry_while_unreachable(
                attempt, lambda error: self._answered and self._is_outage(error), self.url
            )
        except Exception as error:
            if self._is_outage(error):
                self._answered = False
                raise FilesLost(f"the store {self.url} does not answer: {error}") from error
            cause = cause_of(error)
            if cause is None:
                raise
            raise lost_for(cause, f"the store {self.url}", error) from error
        self._answered = True
        return answer

    def _check_there(self) -> None:
        """Raise OSError unless the local folder holds this store; a mount point may be empty."""
        if not self.is_local or not self._store_id:
            return
        try:
            claim = json.loads(Path(self.path(CLAIM_FILE)).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            claim = {}
        except ValueError:  # damaged, but present
            return
        if claim.get("index") != self._store_id:
            raise OSError(errno.ENODEV, "the store is no longer there", self.root)

    def _is_outage(self, error: BaseException) -> bool:
        cause = cause_of(error)
        if self.is_local or cause is not None:
            return cause == Cause.AWAY
        is_answer = isinstance(error, FileNotFoundError | PermissionError | FileExistsError)
        is_of_client = type(error).__module__.partition(".")[0] in _CLIENTS
        return (isinstance(error, OSError) and not is_answer) or is_of_client

    def free_bytes(self) -> float:
        """Return the free bytes of the disk; infinity for remote stores."""

        def free() -> float:
            self._check_there()  # an empty mount point is on another disk
            return shutil.disk_usage(self.root).free

        return self._reach(free) if self.is_local else float("inf")
