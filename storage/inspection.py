"""Inspection of a store: list, describe, count, verify and repair its contents."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import Any

from prefect_tune.storage.cache.entry import SORTS, Entry, Selection
from prefect_tune.storage.codec import decode
from prefect_tune.storage.files import Damaged, Part, place_of
from prefect_tune.storage.key import artifact_folder
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.storage.waiting import StoreLost

_SHOWN = (
    "key", "study", "step", "algorithm", "size_bytes", "cost_seconds", "created", "last_used",
    "hits",
)  # fmt: skip
"""Listed fields of an artifact."""
_OF_CHILD = ("key", "step", "algorithm", "is_present")
_COUNTED = ("budget_bytes", "count", "hits", "misses", "evicted", "refused")


def list_artifacts(
    store: ArtifactStore, selection: Selection, keys: Iterable[str] | None = None
) -> list[Entry]:
    """List selected artifacts in the cache, in descending order; `keys` restricts the list."""
    store.index.flush()
    if keys is None:
        return store.index.select(selection)
    entries = store.index.entries(list(keys)).values()
    found = sorted(entries, key=attrgetter(SORTS[selection.sort]), reverse=True)
    chosen = [
        entry
        for entry in found
        if entry.is_present
        and selection.step in (None, entry.step)
        and selection.algorithm in (None, entry.algorithm)
    ]
    return chosen[: selection.limit]


def find_artifacts(store: ArtifactStore, key: str) -> list[Entry]:
    """Return the artifacts with this key or key prefix."""
    return store.index.select(Selection(beginning=key, present_only=False))


@dataclass(frozen=True, slots=True)
class ArtifactDetail:
    """An artifact in full.

    `urls` locates the files by name (none if evicted). `contents` has a preview of each file, or an
    entry `unreadable` with the reason. `children` were made from it. `lineage` is None if unknown.
    """

    entry: Entry
    urls: Mapping[str, str]
    contents: Mapping[str, Mapping[str, Any]]
    children: Sequence[Entry]
    lineage: Mapping[str, Any] | None

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        entry = self.entry
        return {
            **listed(entry),
            "fold": entry.fold,
            "parent": entry.parent,
            "is_present": entry.is_present,
            "facts": dict(entry.summary),
            "files": [
                {"name": name, **asdict(entry.parts[name]), "url": url}
                for name, url in self.urls.items()
            ],
            "contents": dict(self.contents),
            "children": [
                {name: getattr(child, name) for name in _OF_CHILD} for child in self.children
            ],
            "lineage": self.lineage,
        }


def describe(store: ArtifactStore, entry: Entry) -> ArtifactDetail:
    """Return an artifact with its contents and children."""
    from prefect_tune.storage.cache.preview import preview

    folder = artifact_folder(entry.key)
    children = store.index.select(Selection(parent=entry.key, present_only=False))
    parts = entry.parts if entry.is_present else {}
    contents: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            contents[name] = preview(decode(part.codec, store.files.read(folder, name, part)))
        except Exception as error:  # `verify` reports damage
            contents[name] = {"unreadable": str(error)}
    urls = {name: store.files.path(folder, part.file) for name, part in parts.items()}
    return ArtifactDetail(entry, urls, contents, children, store.provenance(entry))


def listed(entry: Entry) -> dict[str, Any]:
    """Return the listed fields of an artifact, as JSON values."""
    return {name: getattr(entry, name) for name in _SHOWN}


def part_of(store: ArtifactStore, entry: Entry, name: str) -> bytes | memoryview:
    """Return the checked bytes of a part; raises Damaged, or KeyError for an unknown name."""
    return store.files.read(artifact_folder(entry.key), name, entry.parts[name])


@dataclass(frozen=True, slots=True)
class StepStats:
    """Use of the cache by one step, over the life of a store."""

    hits: int
    misses: int
    seconds_saved: float
    evicted: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Sizes of a store in bytes, and counts over its life.

    `copies_bytes` is the size of copies of records on this host. `count` counts artifacts in the
    cache, `refused` those without room, and hits and misses count steps of folds.
    """

    size_bytes: int
    records_bytes: int
    copies_bytes: int
    budget_bytes: int
    count: int
    hits: int
    misses: int
    evicted: int
    refused: int
    refusals: Mapping[str, int]
    seconds_saved: float
    steps: Mapping[str, StepStats]


def stats(store: ArtifactStore) -> StoreStats:
    """Return sizes and counts over the life of the store."""
    totals, by_step = store.index.totals(), store.index.statistics.by_step()
    held = store.index.bytes_by_step()
    return StoreStats(
        size_bytes=totals.cache_bytes,
        records_bytes=store.records.size_bytes(),
        copies_bytes=store.records.copies_bytes(),
        **{name: getattr(totals, name) for name in _COUNTED},
        refusals=store.index.statistics.refusals(),
        seconds_saved=totals.seconds_saved,
        steps={
            step: StepStats(**counts, size_bytes=held.get(step, 0))
            for step, counts in by_step.items()
        },
    )


@dataclass
class Verification:
    """Outcome of comparing index, files and digests.

    Keys and records are `damaged` or `missing`; `orphans` are cache folders without an entry.
    """

    checked: int = 0
    damaged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether every part is present and undamaged."""
        return not (self.damaged or self.missing or self.orphans)


def verify(store: ArtifactStore) -> Verification:
    """Compare every part in the store with its digest; concurrent changes are no faults."""
    found = Verification()
    folders = [*_folders(store, "cache"), *_folders(store, "records")]
    known = {f"{folder}/{place}" for folder, place in store.index.journal.under_way()}
    for entry in store.index.select(Selection()):
        known.add(f"{artifact_folder(entry.key)}/{entry.place}")
        damage = _damage(store, artifact_folder(entry.key), entry.parts)
        now = store.index.entries([entry.key])[entry.key] if damage else entry
        _note(found, entry.key, damage if now.is_present and now.place == entry.place else None)
    for record in store.records.ids():
        try:
            parts = store.records.parts(record)
        except StoreLost:  # the study was removed meanwhile
            continue
        known.add(f"records/{record}/{place_of(parts)}")
        damage = _damage(store, f"records/{record}", parts)
        _note(found, record, damage if damage and _has_parts(store, record, parts) else None)
    # Evicted meanwhile: either still in the journal, or gone.
    known |= {f"{folder}/{place}" for folder, place in store.index.journal.under_way()}
    filesystem = store.files.filesystem
    filesystem.invalidate_cache()
    found.orphans = sorted(
        folder
        for folder in folders
        if folder not in known and filesystem.exists(store.files.path(folder))
    )
    return found


def _has_parts(store: ArtifactStore, record: str, parts: Mapping[str, Part]) -> bool:
    """Return whether a record still has these parts, so that it was not replaced meanwhile."""
    try:
        return store.records.parts(record) == parts
    except StoreLost:
        return False


def repair(store: ArtifactStore, found: Verification) -> None:
    """Forget damaged and missing artifacts, and delete orphans. Damaged records stay."""
    wrong = store.index.entries([*found.damaged, *found.missing])
    for entry in wrong.values():
        store.forget(entry)
    for folder in found.orphans:
        store.files.delete(folder)
    store.sweep()


def _damage(store: ArtifactStore, folder: str, parts: Mapping[str, Part]) -> Damaged | None:
    for name, part in parts.items():
        try:
            store.files.read(folder, name, part)
        except Damaged as damage:
            return damage
        except OSError as error:
            return Damaged(str(error))
    return None


def _note(found: Verification, what: str, damage: Damaged | None) -> None:
    found.checked += 1
    if damage is not None:
        (found.missing if damage.is_missing else found.damaged).append(what)


def _folders(store: ArtifactStore, area: str) -> list[str]:
    filesystem, root = store.files.filesystem, store.files.path(area)
    if not filesystem.exists(root):
        return []
    found = [
        folder
        for folder, below, files in filesystem.walk(root)
        if files or (not below and folder[len(root) :].strip("/").count("/") >= 1)
    ]
    return [folder[len(store.files.root) :].strip("/") for folder in found]
