"""The artifact store: files under an fsspec URL, and their index in a database.

`cache/` holds step results within a byte budget, and `records/` holds files that are never evicted.
An artifact is a folder of files, called parts. The folder is written under a temporary name and
published in one move. Readers find the parts and their digests in the index. A damaged or missing
part counts as a cache miss, with a warning.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from time import perf_counter, time
from types import MappingProxyType
from typing import Any

from cachetools import LRUCache
from sqlalchemy import select, update

from prefect_tune.storage.codec import decode
from prefect_tune.storage.database import upsert
from prefect_tune.storage.eviction import ADD, evict, remove
from prefect_tune.storage.files import (
    FREE_BYTES_KEPT,
    RAISED,
    Damaged,
    EncodedParts,
    Files,
    StoreRefused,
    new_place,
)
from prefect_tune.storage.index import ArtifactIndex, Entry, Publication, end_publications
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.lease import HeldLease, LeaseBook
from prefect_tune.storage.notices import warn
from prefect_tune.storage.opening import StoreAddress, is_there, opened
from prefect_tune.storage.records import Records
from prefect_tune.storage.schema import artifact_table, store_table
from prefect_tune.storage.usage import LOCKED_STORE, note_counts, read_seconds_per_byte

__all__ = ["DEFAULT_BUDGET_BYTES", "ArtifactStore", "Made", "StoreAddress", "StoreRefused"]

DEFAULT_BUDGET_BYTES = 10 * 1000**3
"""Byte budget of a new store's cache."""
DEFAULT_MEMORY_BYTES = 256 * 1000**2
"""Byte budget of a worker's memory tier."""
_BUDGET = select(store_table.c.budget_bytes)
_PROVENANCE_FILE = "provenance.json"
"""File with the lineage of an artifact's key, in the folder of its parts."""


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a step, before it is stored.

    Attributes:
        parts: Values of the parts in canonical form, by name.
        summary: JSON values that become part of the keys of later steps.
        seconds: Time to make the result, including `held_out_seconds`.
        in_memory: Names of the pickled parts to keep in memory.
        held_out_seconds: Time to transform or predict the held-out rows.
        mappable: Whether to write frames and vectors for memory mapping; see `codec.encode`.
    """

    parts: Mapping[str, Any]
    summary: Mapping[str, Any]
    seconds: float
    in_memory: tuple[str, ...] = ()
    held_out_seconds: float = 0.0
    mappable: bool = False


class MemoryTier:
    """Cache of artifact parts in memory, by folder and name. A budget of 0 bytes disables caching.

    The cache holds read-only arrays and the verified bytes of pickles. Every reader unpickles the
    bytes anew. Every publication has a new folder, its `place`, so no stale value is returned.
    """

    def __init__(self, budget_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self._values: LRUCache[tuple[str, str], tuple[Any, int]] = LRUCache(
            budget_bytes, itemgetter(1)
        )
        self._lock = threading.Lock()

    def get(self, place: str, name: str) -> Any:
        """Return the cached value of a part; None if the part is not in memory."""
        with self._lock:
            return self._values.get((place, name), (None,))[0]

    def put(self, place: str, name: str, value: Any) -> None:
        """Cache a read-only matrix, or the bytes of a pickle, unless larger than the budget."""
        from prefect_tune.storage.matrices import frozen_bytes

        is_pickle = isinstance(value, bytes | memoryview)
        size_bytes = len(value) if is_pickle else frozen_bytes(value)
        if size_bytes is not None:
            with self._lock, suppress(ValueError):  # raised for values above the budget
                self._values[place, name] = value, size_bytes

    def drop(self, place: str) -> None:
        """Drop all cached values of one publication."""
        with self._lock:
            for known in [known for known in self._values if known[0] == place]:
                del self._values[known]


class ArtifactStore:
    """Artifacts of steps, by prefix key, in a bounded cache that all workers share.

    Args:
        address: Address of the store. A local folder is created if it does not exist.
        budget_bytes: New byte budget of the cache; None keeps the present budget.
        memory_bytes: Byte budget of this process's memory tier.
        is_read: Whether the caller only reads, so that a read-only store suffices.

    Raises:
        StoreRefused: If the folder is not writable, belongs to another index, or has the format of
            another version; or if a remote URL is given without a database.
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
        self.memory = MemoryTier(memory_bytes)
        self.records = Records(self.files, self.database, self.index.journal)
        self.leases = LeaseBook(self.database)
        self._warned: set[str] = set()
        if budget_bytes is not None:
            self.set_budget(budget_bytes)

    @classmethod
    def exists(cls, address: StoreAddress) -> bool:
        """Return whether a store exists, without creating a store.

        Raises StoreRefused if the URL is malformed or the store cannot be read.
        """
        return is_there(address, Files(address.url))

    def close(self) -> None:
        """Write the usage counts collected in memory, and close the database."""
        try:
            self.index.usage.flush()
        except Exception as error:  # a failed count must not fail the work
            warn("usage", f"cache hits and misses of this process were not recorded: {error}")
        self.leases.close()
        self.database.close()

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
                    if part.codec != "pickle":
                        self.memory.put(entry.place, name, value)
                    read_bytes += part.size_bytes
                elif part.codec == "pickle":
                    value = decode(part.codec, value)
                read[name] = value
        except Damaged as error:
            self.memory.drop(entry.place)
            now = self.index.entries([entry.key]).get(entry.key)
            # If the place differs, another process has just evicted or replaced the artifact.
            if now is not None and now.is_present and now.place == entry.place:
                text = f"step result {entry.key[:12]} is damaged and will be recomputed: {error}"
                warn("damaged", text)
                self.forget(entry)
            return None
        except RAISED:
            raise
        except Exception as error:  # an intact artifact may be unreadable for lack of a package
            text = f"step result {entry.key[:12]} cannot be read: {error}"
            self._warn_once(text, repr(error)[:40])
            return None
        if read_bytes:
            self.index.usage.count_read(entry.step, read_bytes, perf_counter() - started)
        return read

    def get_or_make(
        self,
        entry: Entry,
        lineage: Mapping[str, Any],
        make: Callable[[], Made],
        is_whole: Callable[[], bool] = lambda: True,
        *,
        is_missed: bool = False,
    ) -> tuple[Entry, Made | None]:
        """Serve an artifact from the cache, or make the artifact if no other worker is making it.

        Args:
            entry: Entry that describes the requested artifact.
            lineage: Lineage of the entry's key, stored with the artifact as its provenance.
            make: Function that makes the artifact.
            is_whole: Function that returns whether the records of the artifact exist as well.
            is_missed: Whether the caller has just failed to find the artifact, so that the first
                lookup without a lease is skipped.

        Returns:
            The entry, and the new result (None if the artifact was served from the cache).
        """

        def present() -> Entry | None:
            found = self.index.entries([entry.key]).get(entry.key)
            return found if found is not None and found.is_present and is_whole() else None

        if not is_missed and (served := present()):
            self.index.count_hit(served)
            return served, None
        since, place = time(), new_place()
        noted = replace(entry, place=place)
        look_up = partial(self.index.look_up_to_make, key=entry.key, place=place)
        with self.leases.turn(f"artifact {entry.key}", look_up, present) as lease:
            known = lease.found
            if known is not None and known.is_present:
                if is_whole():
                    self.index.count_hit(known)
                    return known, None
                noted = entry
            was_refused = known is not None and not known.place and known.created >= since
            if not was_refused:
                return self._make(noted, lineage, make, lease)
        # Another worker could not store the artifact, so waiting for other workers is pointless.
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

    def write(
        self,
        entry: Entry,
        made: Made,
        lineage: Mapping[str, Any],
        lease: HeldLease[Any] | None = None,
    ) -> Entry:
        """Store an artifact, and evict other artifacts if the cache is over its budget.

        `entry` has a `place` if the journal already lists this write. `lease` is the lease for
        making the artifact; the write releases the lease. Returns the stored entry, whose
        `is_present` is False if the cache refused the artifact.
        """
        entry = replace(entry, summary=made.summary, cost_seconds=made.seconds)
        try:
            folder = artifact_folder(entry.key)
            if not entry.place:
                entry = replace(entry, place=new_place())
                self.index.journal.begin(folder, entry.place)
            entry, encoded = self._publish(folder, entry, made, lineage)
            is_present, gone = self._admit(entry, lease, is_published=encoded is not None)
            if lease:
                lease.is_over = True
            self._delete(gone)
        except RAISED:
            raise
        except Exception as error:  # such as a locked database
            self._warn_not_kept(entry, error)
            return replace(entry, is_present=False)
        if is_present and encoded is not None:
            for name, value in made.parts.items():
                is_pickle = encoded[name][0].codec == "pickle"
                if not is_pickle or name in made.in_memory:
                    self.memory.put(entry.place, name, encoded[name][1] if is_pickle else value)
        return replace(entry, is_present=is_present)

    def _publish(
        self, folder: str, entry: Entry, made: Made, lineage: Mapping[str, Any]
    ) -> tuple[Entry, EncodedParts | None]:
        """Publish an artifact; return its entry, and its parts (None if publishing failed)."""
        about = {"key": entry.key, "lineage": dict(lineage)}
        extra_files = {_PROVENANCE_FILE: json.dumps(about, indent=1).encode()}
        try:
            encoded = self.files.encode(folder, made.parts, about, mappable=made.mappable)
            sizes = [len(data) for _, data in encoded.values()]
            size_bytes = sum(sizes) + sum(map(len, extra_files.values()))
            entry, why = replace(entry, size_bytes=size_bytes), ""
            if size_bytes > self.database.scalar(_BUDGET):
                why = "larger than the whole cache budget"
            elif self.files.free_bytes() < FREE_BYTES_KEPT + size_bytes:
                why = f"the disk would have less than {FREE_BYTES_KEPT / 1e9:g} GB left"
            if why:
                self._warn_once(f"a step result was not cached in {self.files.url}: {why}", why)
                return entry, None
            parts = self.files.publish(folder, entry.place, encoded, extra_files)
        except RAISED:
            raise
        except Exception as error:  # such as a value that no codec can encode
            self._warn_not_kept(entry, error)
            return entry, None
        return replace(entry, parts=parts), encoded

    def _admit(
        self, entry: Entry, lease: HeldLease[Any] | None, *, is_published: bool
    ) -> tuple[bool, list[Publication]]:
        """Add an artifact to the index, and to the cache unless the cache refuses the artifact.

        While the cache has room, every artifact is admitted. A full cache refuses artifacts that
        are cheaper to make than to read. For other artifacts, the cache makes room by evicting
        unpinned artifacts (see `evict`). Returns whether the artifact is present, and the
        publications to delete.
        """
        publication = artifact_folder(entry.key), entry.place
        with self.database.write() as connection:
            if lease:
                lease.end(connection)
            is_costly = entry.cost_seconds >= entry.size_bytes * read_seconds_per_byte(connection)
            store = connection.execute(LOCKED_STORE).one()
            if not is_published and self.index.is_present(connection, entry.key):
                note_counts(connection, entry.step, {"refused": 1})
                return False, [publication]  # the artifact in the store stays
            gone, freed = remove(connection, [entry.key])
            surplus = store.cache_bytes - freed + entry.size_bytes - store.budget_bytes
            evicted: list[Publication] | None = [] if is_published else None
            if is_published and surplus > 0:
                self.index.usage.write(connection)  # only eviction needs all last uses
                evicted = evict(connection, surplus) if is_costly else None
            is_present = evicted is not None
            if evicted is not None:
                gone += evicted
                connection.execute(ADD, {"more_bytes": entry.size_bytes})
                end_publications(connection, [entry.place])
            else:
                gone.append(publication)
                note_counts(connection, entry.step, {"refused": 1})
                entry = replace(entry, place="", parts={})
            row = replace(entry, created=(now := time()), last_used=now, is_present=is_present)
            upsert(connection, artifact_table, {**row.to_row(), "is_costly": is_costly})
        return is_present, gone

    def set_budget(self, budget_bytes: int) -> None:
        """Change the cache's byte budget for all processes."""
        self.prune(budget_bytes, {"budget_bytes": budget_bytes})

    def prune(self, size_bytes: int, changes: Mapping[str, int] = MappingProxyType({})) -> int:
        """Evict artifacts until the cache has at most `size_bytes`; return the number evicted.

        `changes` are new values for columns of the database row that describes the store.
        """
        with self.database.write() as connection:
            store = connection.execute(LOCKED_STORE).one()
            self.index.usage.write(connection)
            if changes:
                connection.execute(update(store_table).values(changes))
            gone = evict(connection, store.cache_bytes - size_bytes, with_pinned=True) or []
        self._delete(gone)
        return len(gone)

    def forget(self, entry: Entry) -> None:
        """Remove an artifact from the cache. The artifact is recomputed on demand."""
        with self.database.write() as connection:
            connection.execute(LOCKED_STORE)
            gone, _ = remove(connection, [entry.key], place=entry.place)
        self._delete(gone)

    def sweep(self) -> int:
        """Delete files left by dead processes; return the number of publications deleted."""
        return self._delete(self.index.journal.abandoned())

    def _delete(self, publications: Sequence[Publication]) -> int:
        """Delete publications; return the number deleted. `sweep` retries failed deletions."""
        deleted = []
        for folder, place in publications:
            self.memory.drop(place)
            try:
                self.files.clear(folder, place)
            except Exception as error:
                text = f"{self.files.path(folder, place)} could not be deleted: {error}"
                self._warn_once(text, f"delete {type(error).__name__}")
            else:
                deleted.append(place)
        self.index.journal.finish(deleted)
        return len(deleted)

    def provenance(self, entry: Entry) -> Any:
        """Return the lineage stored with an artifact; None if its files are gone."""
        path = self.files.path(artifact_folder(entry.key), entry.place, _PROVENANCE_FILE)
        try:
            return json.loads(self.files.filesystem.cat_file(path))["lineage"]
        except (FileNotFoundError, ValueError):
            return None

    def _warn_not_kept(self, entry: Entry, error: Exception) -> None:
        why = str(error).partition("\n")[0]
        self._warn_once(f"step result {entry.key[:12]} was not cached: {why}", type(error).__name__)

    def _warn_once(self, text: str, what: str) -> None:
        """Warn only once about a fault (`what`) that may recur with every artifact."""
        if what not in self._warned:
            self._warned.add(what)
            warn("artifacts", text, what)
