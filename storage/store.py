"""The artifact store: bytes under an fsspec URL, and the index of them.

Two areas. `cache/` holds what steps made and is bounded; `records/` (see `storage.records`) holds
what must never go. An artifact is a folder of parts, written under a temporary name and published
in one move. Whoever reads goes through the index, which says what digest each part must have; a
part that is damaged or missing is a miss and a warning.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, perf_counter, time
from typing import Any

from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.cache.eviction import DEFAULT_POLICY, POLICIES
from prefect_tune.storage.cache.index import ArtifactIndex, Gone
from prefect_tune.storage.cache.memory import DEFAULT_MEMORY_BYTES, MemoryTier
from prefect_tune.storage.codec import decode
from prefect_tune.storage.files import Damaged, Files, StoreRefused, new_place
from prefect_tune.storage.key import artifact_folder
from prefect_tune.storage.lease import LeaseBook, Turn
from prefect_tune.storage.opening import StoreAddress, is_there, lives_in_memory, opened
from prefect_tune.storage.records import Records

__all__ = [
    "DEFAULT_BUDGET_BYTES",
    "ArtifactStore",
    "Made",
    "StoreAddress",
    "StoreRefused",
]

DEFAULT_BUDGET_BYTES = 10 * 1000**3
"""Byte budget of a new store's cache."""
FREE_BYTES_KEPT = 1000**3
"""The cache stops growing when the disk has no more than this left."""
_PROVENANCE_FILE = "provenance.json"

_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """What a step made, before it is kept.

    Attributes:
        parts: Values by name, in canonical form.
        facts: What keys of later steps need, as JSON values.
        seconds: Time to make it.
    """

    parts: Mapping[str, Any]
    facts: Mapping[str, Any]
    seconds: float


class ArtifactStore:
    """What steps made, by prefix key, in a cache of bounded size that all workers share.

    Args:
        address: Where it is. A local folder is made if it does not exist.
        budget_bytes: New byte budget of the cache; None leaves that of the store as it is.
        policy: New policy of eviction (`storage.eviction`); None leaves that of the store.
        memory_bytes: Byte budget of this process's memory tier.

    Raises:
        StoreRefused: If the folder cannot be written, belongs to another index, or was made by a
            newer version; or if a remote URL comes without a database.
    """

    def __init__(
        self,
        address: StoreAddress,
        budget_bytes: int | None = None,
        policy: str | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> None:
        if policy is not None and policy not in POLICIES:
            raise StoreRefused(
                f"unknown policy {policy!r} of eviction; known: {', '.join(POLICIES)}"
            )
        self.address = address
        self._said: set[str] = set()
        self._budget, self._budget_read = 0, float("-inf")
        self.files = Files(address.url)
        self.database, self.id = opened(
            address, self.files, budget_bytes or DEFAULT_BUDGET_BYTES, policy or DEFAULT_POLICY
        )
        self.index = ArtifactIndex(self.database)
        self.memory = MemoryTier(memory_bytes)
        self.records = Records(self.files, self.database, self.index.journal)
        self.leases = LeaseBook(self.database)
        if budget_bytes is not None:
            self.set_budget(budget_bytes)
        if policy is not None:
            self.index.set_policy(policy)

    @classmethod
    def exists(cls, address: StoreAddress) -> bool:
        """Whether there is a store at an address; nothing is made.

        Raises:
            StoreRefused: If it is at a kind of place that is not known.
        """
        return is_there(address, Files(address.url))

    def close(self) -> None:
        """Write what is still to be counted and let go of the database."""
        self.index.stop()
        self.leases.close()
        if not lives_in_memory(self.database):
            self.database.close()

    def set_budget(self, budget_bytes: int) -> None:
        """Change the cache's byte budget, for everyone who uses the store."""
        self._budget_read = float("-inf")
        self._delete(self.index.set_budget(budget_bytes))

    def read(self, entry: Entry, names: Sequence[str]) -> dict[str, Any] | None:
        """The named parts of an artifact, or None when one of them is missing or damaged."""
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
                read[name] = value
        except Damaged as error:
            self._found_damaged(entry, error)
            return None
        except Exception as error:  # it may be whole, and another time or elsewhere be read
            self._warn_once(f"artifact {entry.key[:12]} cannot be read: {error}", repr(error)[:40])
            return None
        if read_bytes:
            self.index.uses.count_load(entry, read_bytes, perf_counter() - started)
        return read

    def write(
        self,
        entry: Entry,
        made: Made,
        lineage: Mapping[str, Any],
        turn: Turn[Any] | None = None,
    ) -> Entry:
        """Keep an artifact, evicting others for it as the budget demands.

        Args:
            entry: What is known of it; its place, if it has one, is noted in the journal already.
            made: What to keep.
            lineage: All that its key was computed from.
            turn: The lease on making it, which ends when it is entered.

        Returns:
            The entry as kept. When it was refused, `is_present` is False.
        """
        entry = replace(entry, facts=made.facts, cost_seconds=made.seconds)
        try:
            return self._written(entry, made, lineage, turn)
        except Exception as error:  # a locked database
            self._warn_not_kept(entry, error)
            return replace(entry, is_present=False)

    def _written(
        self, entry: Entry, made: Made, lineage: Mapping[str, Any], turn: Turn[Any] | None
    ) -> Entry:
        folder = artifact_folder(entry.key)
        if not entry.place:
            entry = replace(entry, place=new_place())
            self.index.journal.begin(folder, entry.place)
        try:
            entry, reason = self._published(entry, made, lineage)
        except Exception as error:  # a full disk, a value that no codec takes
            self._warn_not_kept(entry, error)
            reason = "it could not be written"
        if reason:
            self._clear([(folder, entry.place)])
            self.index.refuse(entry, reason)
            return replace(entry, is_present=False)
        self.index.uses.count_make(entry)
        reason, gone = self.index.admit(entry, turn.end if turn else None)
        if turn:
            turn.is_over = True
        self._delete(gone)
        if not reason:
            for name, value in made.parts.items():
                self.memory.put(entry.place, name, value)
        return replace(entry, is_present=not reason)

    def _published(self, entry: Entry, made: Made, lineage: Mapping[str, Any]) -> tuple[Entry, str]:
        """Write an artifact to its place, or say why not."""
        folder, about = artifact_folder(entry.key), {"key": entry.key, "lineage": dict(lineage)}
        besides = {_PROVENANCE_FILE: _provenance(entry, lineage)}
        encoded = self.files.encode(folder, made.parts, about)
        size_bytes = sum(part.size_bytes for part, _ in encoded.values())
        entry = replace(entry, size_bytes=size_bytes + sum(map(len, besides.values())))
        if reason := self._reason_to_refuse(entry):
            return entry, reason
        parts = self.files.publish(folder, entry.place, encoded, besides)
        return replace(entry, parts=parts), ""

    def sweep(self) -> int:
        """Delete what processes that died have left half written or deleted; how much it was."""
        return self._clear(self.index.journal.abandoned())

    def forget(self, entry: Entry) -> None:
        """Have an artifact made again when it is next needed."""
        self._delete(self.index.forget(entry))

    def _found_damaged(self, entry: Entry, error: Exception) -> None:
        """Have a damaged artifact made again; of one that was evicted meanwhile nothing is said."""
        self.memory.drop(entry.place)
        now = self.index.entries([entry.key]).get(entry.key)
        if now is not None and now.is_present and now.place == entry.place:
            _LOGGER.warning(f"artifact {entry.key[:12]} is made again: {error}")
            self._delete(self.index.forget(entry))

    def _reason_to_refuse(self, entry: Entry) -> str:
        """Why an artifact cannot be kept whatever goes for it; empty if it can."""
        if self.files.free_bytes() < FREE_BYTES_KEPT + entry.size_bytes:
            reason = f"the disk has less than {FREE_BYTES_KEPT / 1e9:g} GB left"
        elif entry.size_bytes > self._budget_bytes():
            reason = "larger than the whole cache may be"
        else:
            return ""
        self._warn_once(f"artifacts are not kept in {self.address.url}: {reason}", reason)
        return reason

    def _budget_bytes(self) -> int:
        """The cache's budget, not older than a second; entering an artifact looks again."""
        if monotonic() - self._budget_read > 1.0:
            self._budget, self._budget_read = self.index.budget_bytes(), monotonic()
        return self._budget

    def _warn_not_kept(self, entry: Entry, error: Exception) -> None:
        why = str(error).partition("\n")[0]
        self._warn_once(f"artifact {entry.key[:12]} is not kept: {why}", type(error).__name__)

    def _warn_once(self, text: str, what: str) -> None:
        """Warn of what would otherwise be said for every artifact; the counters count the rest."""
        if what not in self._said:
            self._said.add(what)
            _LOGGER.warning(text)

    def get_or_make(
        self,
        entry: Entry,
        lineage: Mapping[str, Any],
        make: Callable[[], Made],
        is_whole: Callable[[], bool] = lambda: True,
    ) -> tuple[Entry, Made | None]:
        """Serve an artifact, or have it made by one of all the workers that need it.

        Args:
            entry: What is known of it before it is made.
            lineage: All that its key was computed from; kept beside it as its provenance.
            make: Makes it.
            is_whole: Whether what belongs to it outside the cache is there too.

        Returns:
            The entry, and what was made; None when it was served.
        """
        if served := self._serve(entry.key, is_whole):
            return served, None
        since, place = time(), new_place()
        noted = replace(entry, place=place)
        look = partial(self.index.look_up_to_make, key=entry.key, place=place)
        with self.leases.turn(f"artifact {entry.key}", look) as turn:
            known = turn.found
            if known is not None and known.is_present:
                if is_whole():
                    self.index.uses.count_hit(known)
                    return known, None
                noted = entry
            was_refused = known is not None and not known.place and known.created >= since
            if not was_refused:
                return self._make(noted, lineage, make, turn)
        # Whoever was waited for made it, and it was not kept: no need to queue for the same.
        return self._make(noted, lineage, make)

    def _make(
        self,
        entry: Entry,
        lineage: Mapping[str, Any],
        make: Callable[[], Made],
        turn: Turn[Any] | None = None,
    ) -> tuple[Entry, Made]:
        try:
            made = make()
        except BaseException:
            if entry.place:
                self.index.journal.finish([entry.place])
            raise
        self.index.uses.count_miss(entry.step)
        return self.write(entry, made, lineage, turn), made

    def provenance(self, entry: Entry) -> Any:
        """The lineage kept beside an artifact; None when its files are gone."""
        path = self.files.path(artifact_folder(entry.key), entry.place, _PROVENANCE_FILE)
        try:
            return json.loads(self.files.filesystem.cat_file(path))["lineage"]
        except (FileNotFoundError, ValueError):
            return None

    def prune(self, size_bytes: int) -> int:
        """Evict as the policy says until the cache is at most this large; how many went."""
        gone = self.index.shrink(size_bytes)
        self._delete(gone)
        return len(gone)

    def _serve(self, key: str, is_whole: Callable[[], bool]) -> Entry | None:
        entry = self.index.entries([key]).get(key)
        if entry is None or not entry.is_present or not is_whole():
            return None
        self.index.uses.count_hit(entry)
        return entry

    def _delete(self, gone: Sequence[Gone]) -> None:
        """Delete the bytes of what was evicted."""
        for _, place in gone:
            self.memory.drop(place)
        self._clear([(artifact_folder(key), place) for key, place in gone])

    def _clear(self, places: Sequence[tuple[str, str]]) -> int:
        """Delete places that the journal has; how many. What cannot be is left to a later sweep."""
        cleared = []
        for folder, place in places:
            try:
                self.files.clear(folder, place)
            except Exception as error:
                text = f"{self.files.path(folder, place)} could not be deleted: {error}"
                self._warn_once(text, f"delete {type(error).__name__}")
            else:
                cleared.append(place)
        self.index.journal.finish(cleared)
        return len(cleared)


def _provenance(entry: Entry, lineage: Mapping[str, Any]) -> bytes:
    document = {
        "key": entry.key,
        "parent": entry.parent,
        "study": entry.study,
        "cost_seconds": entry.cost_seconds,
        "facts": dict(entry.facts),
        "lineage": dict(lineage),
    }
    return json.dumps(document, indent=1).encode()
