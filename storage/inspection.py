"""Looking into a store: what is in it, and whether it is what was written."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from prefect_tune.storage.artifact_rows import SORTS, Entry, Selection
from prefect_tune.storage.codec import decode
from prefect_tune.storage.contents import summary
from prefect_tune.storage.files import Damaged, Part
from prefect_tune.storage.lease import LEASE_SECONDS
from prefect_tune.storage.store import ArtifactStore, artifact_folder

__all__ = [
    "SORTS",
    "Selection",
    "Verification",
    "describe",
    "find_artifacts",
    "list_artifacts",
    "part_of",
    "repair",
    "stats",
    "verify",
]

_SORT_KEYS = {
    "age": lambda e: e.created,
    "cost": lambda e: e.cost_seconds,
    "size": lambda e: e.size_bytes,
    "use": lambda e: e.last_used,
}


def list_artifacts(
    store: ArtifactStore, selection: Selection, keys: Iterable[str] | None = None
) -> list[dict[str, Any]]:
    """Artifacts whose bytes are in the cache, the newest, largest, ... first.

    Args:
        store: The store.
        selection: Which, and in what order.
        keys: Only those of these that are selected; None for all.
    """
    store.index.flush()
    if keys is None:
        return [_row(entry) for entry in store.index.select(selection)]
    found = sorted(
        store.index.entries(list(keys)).values(), key=_SORT_KEYS[selection.sort], reverse=True
    )
    chosen = [
        entry
        for entry in found
        if entry.is_present
        and selection.step in (None, entry.step)
        and selection.algorithm in (None, entry.algorithm)
    ]
    return [_row(entry) for entry in chosen[: selection.limit]]


def find_artifacts(store: ArtifactStore, key: str) -> list[Entry]:
    """The artifacts whose key is given or begins so."""
    return store.index.select(Selection(beginning=key, present_only=False))


def describe(store: ArtifactStore, entry: Entry) -> dict[str, Any]:
    """All that is known of an artifact, what is in it, and what was made from it."""
    folder = artifact_folder(entry.key)
    children = store.index.select(Selection(parent=entry.key, present_only=False))
    contents: dict[str, Any] = {}
    for name, part in entry.parts.items() if entry.is_present else ():
        try:
            contents[name] = summary(decode(part.codec, store.files.read(folder, name, part)))
        except Exception as error:  # it is what `verify` is for
            contents[name] = {"unreadable": str(error)}
    return {
        **_row(entry),
        "fold": entry.fold,
        "parent": entry.parent,
        "is_present": entry.is_present,
        "facts": dict(entry.facts),
        "files": [
            {"name": name, **asdict(part), "url": store.files.path(folder, part.file)}
            for name, part in entry.parts.items()
            if entry.is_present
        ],
        "contents": contents,
        "children": [
            {"key": c.key, "step": c.step, "algorithm": c.algorithm, "is_present": c.is_present}
            for c in children
        ],
        "lineage": store.provenance(entry),
    }


def part_of(store: ArtifactStore, entry: Entry, name: str) -> bytes | memoryview:
    """The bytes of a part, checked.

    Raises:
        Damaged: If they are not what was written, or not there.
        KeyError: If there is no such part.
    """
    return store.files.read(artifact_folder(entry.key), name, entry.parts[name])


def stats(store: ArtifactStore) -> dict[str, Any]:
    """Sizes and counts over the life of the store."""
    totals = store.index.totals()
    return {
        "size_bytes": totals.cache_bytes,
        "records_bytes": store.records.size_bytes(),
        "budget_bytes": totals.budget_bytes,
        "policy": totals.policy,
        "count": totals.count,
        "hits": totals.hits,
        "misses": totals.misses,
        "evicted": totals.evicted,
        "refused": totals.refused,
        "refusals": store.index.measured.refusals(),
        "seconds_saved": totals.seconds_saved,
        "steps": store.index.measured.by_step(),
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
    entries = store.index.select(Selection())
    for entry in entries:
        _check(store, entry.key, artifact_folder(entry.key), entry.parts, found)
    for record in store.records.ids():
        _check(store, record, f"records/{record}", store.records.parts(record), found)
    known = {f"{artifact_folder(entry.key)}/{entry.place}" for entry in entries}
    # What a living writer is about to enter is no orphan.
    known |= {f"{folder}/{place}" for folder, place in store.index.abandoned(-LEASE_SECONDS)}
    found.orphans = sorted(folder for folder in _folders(store) if folder not in known)
    return found


def repair(store: ArtifactStore, found: Verification) -> None:
    """Have what is damaged or missing in the cache made again when it is needed; delete orphans.

    Records are left as they are: imported data is written again when the same input is read.
    """
    wrong = store.index.entries([*found.damaged, *found.missing])
    for entry in wrong.values():
        store.index.forget(entry)
        store.files.delete(f"{artifact_folder(entry.key)}/{entry.place}")
    for folder in found.orphans:
        store.files.delete(folder)
    store.sweep()


def _check(
    store: ArtifactStore, what: str, folder: str, parts: Mapping[str, Part], found: Verification
) -> None:
    found.checked += 1
    for name, part in parts.items():
        try:
            store.files.read(folder, name, part)
        except Damaged as damage:
            (found.missing if damage.is_missing else found.damaged).append(what)
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
