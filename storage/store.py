"""The artifact store: bytes under an fsspec URL, and their index.

`cache/` has results of steps within a byte budget, `records/` has files that are never evicted. An
artifact is a folder of parts, written under a temporary name and published in one move. Readers use
the index, which holds the digest of each part. A damaged or missing part counts as a miss, with a
warning.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter, time
from typing import Any

from prefect_tune.storage.cache.bounded import BoundedCache
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.cache.index import ArtifactIndex
from prefect_tune.storage.codec import decode
from prefect_tune.storage.files import RAISED, Damaged, Files, StoreRefused, new_place
from prefect_tune.storage.key import artifact_folder
from prefect_tune.storage.lease import HeldLease, LeaseBook
from prefect_tune.storage.notices import warn
from prefect_tune.storage.opening import StoreAddress, is_there, opened
from prefect_tune.storage.records import Records
from prefect_tune.storage.writer import (
    DEFAULT_MEMORY_BYTES,
    PROVENANCE_FILE,
    ArtifactWriter,
    Made,
    MemoryTier,
)

__all__ = ["DEFAULT_BUDGET_BYTES", "ArtifactStore", "Made", "StoreAddress", "StoreRefused"]

DEFAULT_BUDGET_BYTES = 10 * 1000**3
"""Byte budget of a new store's cache."""


class ArtifactStore:
    """Artifacts of steps, by prefix key, in a bounded cache that all workers share.

    Args:
        address: Address of the store. A local folder is created if it does not exist.
        budget_bytes: New byte budget of the cache; None keeps the store's budget.
        memory_bytes: Byte budget of this process's memory tier.
        is_read: Whether the store is only read, so that a read-only one will do.

    Raises:
        StoreRefused: If the folder cannot be written, belongs to another index, or was made by a
            newer version; or if a remote URL has no database.
    """

    def __init__(
        self,
        address: StoreAddress,
        budget_bytes: int | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
        *,
        is_read: bool = False,
    ) -> None:
        self.files = Files(address.url)
        self.database, self.id = opened(
            address, self.files, budget_bytes or DEFAULT_BUDGET_BYTES, is_read=is_read
        )
        self.address = replace(address, id=self.id)
        self.files.belong_to(self.id)
        self.database.belong_to(self.id)
        self.index = ArtifactIndex(self.database)
        self.cache = BoundedCache(self.index)
        self.memory = MemoryTier(memory_bytes)
        self._writer = ArtifactWriter(self.files, self.index, self.cache, self.memory)
        self.records = Records(self.files, self.database, self.index.journal)
        self.leases = LeaseBook(self.database)
        if budget_bytes is not None:
            self.set_budget(budget_bytes)

    @classmethod
    def exists(cls, address: StoreAddress) -> bool:
        """Return whether a store exists, creating none; raises StoreRefused for a bad URL."""
        return is_there(address, Files(address.url))

    def close(self) -> None:
        """Write the collected usage and close the database."""
        self.index.usage.stop()
        self.leases.close()
        self.database.close()

    def set_budget(self, budget_bytes: int) -> None:
        """Change the cache's byte budget for all processes."""
        self._writer.set_budget(budget_bytes)

    def read(self, entry: Entry, names: Sequence[str]) -> dict[str, Any] | None:
        """Return the named parts of an artifact; None if a part is missing or damaged."""
        if not entry.is_present:
            return None
        folder, started, read_bytes = artifact_folder(entry.key), perf_counter(), 0
        read: dict[str, Any] = {}
        try:
            for name in names:
                part = entry.parts[name]
                value = self.memory.get(entry.place, name)
                if value is None:
                    value = decode(part.codec, self.files.read(folder, name, part))
                    self.memory.put(entry.place, name, value)
                    read_bytes += part.size_bytes
                elif part.codec == "pickle":
                    value = decode(part.codec, value)
                read[name] = value
        except Damaged as error:
            self._found_damaged(entry, error)
            return None
        except RAISED:
            raise
        except Exception as error:  # it may be intact, but unreadable here (a missing package)
            self._writer.warn_once(
                f"artifact {entry.key[:12]} cannot be read: {error}", repr(error)[:40]
            )
            return None
        if read_bytes:
            self.index.usage.count_load(entry, read_bytes, perf_counter() - started)
        return read

    def write(
        self,
        entry: Entry,
        made: Made,
        lineage: Mapping[str, Any],
        lease: HeldLease[Any] | None = None,
    ) -> Entry:
        """Store an artifact, evicting others as the budget demands.

        `entry` has a place if the journal already has its publication, and `lease` is the lease on
        making the artifact, which ends with the write. Returns the stored entry; if the artifact
        was refused, `is_present` is False.
        """
        return self._writer.write(entry, made, lineage, lease)

    def sweep(self) -> int:
        """Clean up writes and deletions that dead processes left unfinished; return how many."""
        return self._writer.clear(self.index.journal.abandoned())

    def forget(self, entry: Entry) -> None:
        """Forget an artifact, which is made again on demand."""
        self._writer.delete(self.cache.forget(entry))

    def _found_damaged(self, entry: Entry, error: Exception) -> None:
        """Forget a damaged artifact with a warning, unless it was evicted meanwhile."""
        self.memory.drop(entry.place)
        now = self.index.entries([entry.key]).get(entry.key)
        if now is not None and now.is_present and now.place == entry.place:
            text = f"artifact {entry.key[:12]} is damaged and will be recomputed: {error}"
            warn("damaged", text)
            self._writer.delete(self.cache.forget(entry))

    def get_or_make(
        self,
        entry: Entry,
        lineage: Mapping[str, Any],
        make: Callable[[], Made],
        is_whole: Callable[[], bool] = lambda: True,
        *,
        is_missed: bool = False,
    ) -> tuple[Entry, Made | None]:
        """Serve an artifact, or make it in one of the workers that need it.

        Args:
            entry: The entry before the artifact is made.
            lineage: Lineage of its key; stored with the artifact as its provenance.
            make: Makes the artifact.
            is_whole: Returns whether its parts outside the cache exist too.
            is_missed: Whether the caller has just missed it, so one lookup under the lease
                suffices.

        Returns:
            The entry, and the new result; None if the artifact was served.
        """
        if not is_missed and (served := self._present(entry.key, is_whole)):
            self.index.usage.count_hit(served)
            return served, None
        since, place = time(), new_place()
        noted = replace(entry, place=place)
        look = partial(self.index.look_up_to_make, key=entry.key, place=place)
        made_meanwhile = partial(self._present, entry.key, is_whole)
        with self.leases.turn(f"artifact {entry.key}", look, made_meanwhile) as lease:
            known = lease.found
            if known is not None and known.is_present:
                if is_whole():
                    self.index.usage.count_hit(known)
                    return known, None
                noted = entry
            was_refused = known is not None and not known.place and known.created >= since
            if not was_refused:
                return self._make(noted, lineage, make, lease)
        # The worker we waited for could not store it, so waiting for another one is pointless.
        return self._make(noted, lineage, make)

    def _make(
        self,
        entry: Entry,
        lineage: Mapping[str, Any],
        make: Callable[[], Made],
        lease: HeldLease[Any] | None = None,
    ) -> tuple[Entry, Made]:
        try:
            made = make()
        except BaseException:
            if entry.place:
                self.index.journal.finish([entry.place])
            raise
        self.index.usage.count_miss(entry.step)
        return self.write(entry, made, lineage, lease), made

    def provenance(self, entry: Entry) -> Any:
        """Return the lineage stored with an artifact; None if its files are gone."""
        path = self.files.path(artifact_folder(entry.key), entry.place, PROVENANCE_FILE)
        try:
            return json.loads(self.files.filesystem.cat_file(path))["lineage"]
        except (FileNotFoundError, ValueError):
            return None

    def prune(self, size_bytes: int) -> int:
        """Evict until the cache is at most this large; return the number evicted."""
        gone = self.cache.shrink(size_bytes)
        self._writer.delete(gone)
        return len(gone)

    def _present(self, key: str, is_whole: Callable[[], bool]) -> Entry | None:
        entry = self.index.entries([key]).get(key)
        return entry if entry is not None and entry.is_present and is_whole() else None
