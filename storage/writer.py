"""Writing artifacts to files within the cache's budget, and keeping hot ones in worker memory.

Memory holds only read-only arrays, and a few pickles as checked bytes from which each reader makes
its own value. Entries are named by place, so nothing stale is served.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from time import monotonic
from typing import Any

from cachetools import LRUCache

from prefect_tune.storage.cache.bounded import BoundedCache, Evicted
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.cache.index import ArtifactIndex
from prefect_tune.storage.files import FREE_BYTES_KEPT, RAISED, Files, Part, new_place
from prefect_tune.storage.journal import Publication
from prefect_tune.storage.key import artifact_folder
from prefect_tune.storage.lease import HeldLease
from prefect_tune.storage.notices import warn

DEFAULT_MEMORY_BYTES = 256 * 1000**2
"""Byte budget of a worker's memory tier."""


class MemoryTier:
    """Values by place and name, within a byte budget; a budget of 0 turns the tier off."""

    def __init__(self, budget_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self._values: LRUCache[tuple[str, str], tuple[Any, int]] = LRUCache(
            budget_bytes, itemgetter(1)
        )
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """Total bytes of all values."""
        return int(self._values.currsize)

    def get(self, place: str, name: str) -> Any:
        """Return a value; None if it is not held."""
        with self._lock:
            return self._values.get((place, name), (None,))[0]

    def put(self, place: str, name: str, value: Any) -> None:
        """Hold a value if it is read-only and fits."""
        from prefect_tune.storage.matrices import frozen_bytes

        size_bytes = frozen_bytes(value)
        if size_bytes is not None:
            self._hold(place, name, value, size_bytes)

    def put_pickle(self, place: str, name: str, data: bytes | memoryview) -> None:
        """Hold the bytes of a pickle if they fit."""
        self._hold(place, name, data, len(data))

    def _hold(self, place: str, name: str, value: Any, size_bytes: int) -> None:
        with self._lock, suppress(ValueError):  # raised for values above the budget
            self._values[place, name] = value, size_bytes

    def drop(self, place: str) -> None:
        """Drop all values of a place."""
        with self._lock:
            for held in [held for held in self._values if held[0] == place]:
                del self._values[held]


PROVENANCE_FILE = "provenance.json"
"""File with the lineage of an artifact's key, in the folder of its parts."""

Encoded = Mapping[str, tuple[Part, bytes | memoryview]]
"""Parts as bytes, with their descriptions."""


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a step, before it is stored.

    `parts` are canonical values by name, `summary` is needed for later keys, and `held` names
    pickled parts likely to be read again. `seconds` include the `held_out_seconds`. `mappable` is
    as in `codec.encode`.
    """

    parts: Mapping[str, Any]
    summary: Mapping[str, Any]
    seconds: float
    held: tuple[str, ...] = ()
    held_out_seconds: float = 0.0
    mappable: bool = False


class ArtifactWriter:
    """Writes artifacts to the store's files and the memory tier, if the cache admits them."""

    def __init__(
        self, files: Files, index: ArtifactIndex, cache: BoundedCache, memory: MemoryTier
    ) -> None:
        self._files, self._index, self._cache, self._memory = files, index, cache, memory
        self._said: set[str] = set()
        self._budget, self._budget_read = 0, float("-inf")

    def set_budget(self, budget_bytes: int) -> None:
        """Change the cache's byte budget for all processes."""
        self._budget_read = float("-inf")
        self.delete(self._cache.set_budget(budget_bytes))

    def write(
        self,
        entry: Entry,
        made: Made,
        lineage: Mapping[str, Any],
        lease: HeldLease[Any] | None = None,
    ) -> Entry:
        """Store an artifact; see `ArtifactStore.write`."""
        entry = replace(entry, summary=made.summary, cost_seconds=made.seconds)
        try:
            return self._written(entry, made, lineage, lease)
        except RAISED:
            raise
        except Exception as error:  # such as a locked database
            self._warn_not_kept(entry, error)
            return replace(entry, is_present=False)

    def _written(
        self, entry: Entry, made: Made, lineage: Mapping[str, Any], lease: HeldLease[Any] | None
    ) -> Entry:
        folder = artifact_folder(entry.key)
        if not entry.place:
            entry = replace(entry, place=new_place())
            self._index.journal.begin(folder, entry.place)
        encoded: Encoded = {}
        try:
            about = {"key": entry.key, "lineage": dict(lineage)}
            encoded = self._files.encode(folder, made.parts, about, mappable=made.mappable)
            entry, reason = self._published(entry, encoded, lineage)
        except RAISED:
            raise
        except Exception as error:  # such as a value that no codec takes
            self._warn_not_kept(entry, error)
            reason = "it could not be written"
        if reason:
            self.clear([(folder, entry.place)])
            self._cache.refuse(entry, reason)
            return replace(entry, is_present=False)
        self._index.usage.count_make(entry)
        reason, gone = self._cache.admit(entry, lease.end if lease else None)
        if lease:
            lease.is_over = True
        self.delete(gone)
        if not reason:
            for name, value in made.parts.items():
                self._memory.put(entry.place, name, value)
            for name in made.held:
                self._memory.put_pickle(entry.place, name, encoded[name][1])
        return replace(entry, is_present=not reason)

    def _published(
        self, entry: Entry, encoded: Encoded, lineage: Mapping[str, Any]
    ) -> tuple[Entry, str]:
        folder = artifact_folder(entry.key)
        extra_files = {PROVENANCE_FILE: _provenance(entry, lineage)}
        size_bytes = sum(part.size_bytes for part, _ in encoded.values())
        entry = replace(entry, size_bytes=size_bytes + sum(map(len, extra_files.values())))
        if reason := self._reason_to_refuse(entry):
            return entry, reason
        parts = self._files.publish(folder, entry.place, encoded, extra_files)
        return replace(entry, parts=parts), ""

    def _reason_to_refuse(self, entry: Entry) -> str:
        if self._files.free_bytes() < FREE_BYTES_KEPT + entry.size_bytes:
            reason = f"the disk has less than {FREE_BYTES_KEPT / 1e9:g} GB left"
        elif entry.size_bytes > self._budget_bytes():
            reason = "larger than the whole cache budget"
        else:
            return ""
        self.warn_once(f"artifacts are not kept in {self._files.url}: {reason}", reason)
        return reason

    def _budget_bytes(self) -> int:
        """Return the cache's budget, at most a second old; admission reads it again."""
        if monotonic() - self._budget_read > 1.0:
            self._budget, self._budget_read = self._index.budget_bytes(), monotonic()
        return self._budget

    def _warn_not_kept(self, entry: Entry, error: Exception) -> None:
        why = str(error).partition("\n")[0]
        self.warn_once(f"artifact {entry.key[:12]} is not kept: {why}", type(error).__name__)

    def warn_once(self, text: str, what: str) -> None:
        """Warn once of a fault that may recur with every artifact; counters have the total."""
        if what not in self._said:
            self._said.add(what)
            warn("artifacts", text, what)

    def delete(self, gone: Sequence[Evicted]) -> None:
        """Delete the bytes of evicted publications."""
        for _, place in gone:
            self._memory.drop(place)
        self.clear([(artifact_folder(key), place) for key, place in gone])

    def clear(self, publications: Sequence[Publication]) -> int:
        """Delete publications and return how many; failures are left to a later sweep."""
        cleared = []
        for folder, place in publications:
            try:
                self._files.clear(folder, place)
            except Exception as error:
                text = f"{self._files.path(folder, place)} could not be deleted: {error}"
                self.warn_once(text, f"delete {type(error).__name__}")
            else:
                cleared.append(place)
        self._index.journal.finish(cleared)
        return len(cleared)


def _provenance(entry: Entry, lineage: Mapping[str, Any]) -> bytes:
    known = {name: getattr(entry, name) for name in ("key", "parent", "study", "cost_seconds")}
    document = {**known, "facts": dict(entry.summary), "lineage": dict(lineage)}
    return json.dumps(document, indent=1).encode()
