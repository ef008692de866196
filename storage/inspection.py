"""Looking into a store: what is in it, and whether it is what was written."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from prefect_tune.storage.files import Damaged, Part
from prefect_tune.storage.index import Entry
from prefect_tune.storage.store import ArtifactStore, artifact_folder

__all__ = ["Verification", "describe", "find_artifacts", "list_artifacts", "stats", "verify"]


def list_artifacts(store: ArtifactStore, keys: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """Artifacts whose bytes are in the cache, newest first; all of them, or those of some keys."""
    if keys is None:
        entries = store.index.all_entries()
    else:
        found = store.index.entries(list(keys)).values()
        entries = sorted((e for e in found if e.is_present), key=lambda e: -e.created)
    return [_row(entry) for entry in entries]


def find_artifacts(store: ArtifactStore, key: str) -> list[Entry]:
    """The artifacts whose key is given or begins so."""
    return [e for e in store.index.all_entries(present_only=False) if e.key.startswith(key)]


def describe(store: ArtifactStore, entry: Entry) -> dict[str, Any]:
    """All that is known of an artifact: its row, facts, files and provenance."""
    return {
        **_row(entry),
        "fold": entry.fold,
        "parent": entry.parent,
        "is_present": entry.is_present,
        "facts": dict(entry.facts),
        "files": [
            {
                "name": name,
                **asdict(part),
                "url": store.files.path(artifact_folder(entry.key), part.file),
            }
            for name, part in entry.parts.items()
        ],
        "lineage": store.provenance(entry),
    }


def stats(store: ArtifactStore) -> dict[str, Any]:
    """Sizes and counts over the life of the store."""
    totals = store.index.totals()
    return {
        "size_bytes": totals.cache_bytes,
        "records_bytes": store.records.size_bytes(),
        "budget_bytes": totals.budget_bytes,
        "count": totals.count,
        "hits": totals.hits,
        "misses": totals.misses,
        "evicted": totals.evicted,
        "refused": totals.refused,
        "seconds_saved": totals.seconds_saved,
    }


@dataclass
class Verification:
    """Index against files against digests.

    Attributes:
        checked: Artifacts and records looked at.
        damaged: Keys and records of which a part is not what was written.
        missing: Keys and records of which a part is not there.
        orphans: Folders in the cache that the index does not know.
    """

    checked: int = 0
    damaged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether everything is there and as it was written."""
        return not (self.damaged or self.missing or self.orphans)


def verify(store: ArtifactStore) -> Verification:
    """Read every part of every artifact and record, and compare it with its digest."""
    found = Verification()
    entries = store.index.all_entries()
    for entry in entries:
        _check(store, entry.key, artifact_folder(entry.key), entry.parts.values(), found)
    for record in store.records.ids():
        _check(store, record, f"records/{record}", store.records.parts(record).values(), found)
    known = {f"{artifact_folder(entry.key)}/{entry.place}" for entry in entries}
    found.orphans = sorted(folder for folder in _folders(store) if folder not in known)
    return found


def _check(
    store: ArtifactStore, name: str, folder: str, parts: Iterable[Part], found: Verification
) -> None:
    found.checked += 1
    for part in parts:
        try:
            store.files.read(folder, part)
        except Damaged as damage:
            (found.missing if damage.is_missing else found.damaged).append(name)
            return


def _folders(store: ArtifactStore) -> Iterator[str]:
    """Every publication in the cache area."""

    def below(path: str) -> list[str]:
        filesystem = store.files.filesystem
        found = filesystem.ls(path, detail=False) if filesystem.exists(path) else []
        return sorted(name.rstrip("/") for name in found)

    for fan in below(store.files.path("cache")):
        for folder in below(fan):
            for place in below(folder) or [folder]:
                yield place[len(store.files.root) :].lstrip("/")


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "key": entry.key,
        "study": entry.study,
        "step": entry.step,
        "algorithm": entry.algorithm,
        "size_bytes": entry.size_bytes,
        "cost_seconds": entry.cost_seconds,
        "created": entry.created,
        "last_used": entry.last_used,
        "hits": entry.hits,
    }
