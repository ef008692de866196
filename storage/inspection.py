"""Inspection of a store: descriptions of artifacts, verification, and repair."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any

from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.codec import decode
from prefect_tune.storage.files import Damaged, Part, place_of
from prefect_tune.storage.index import Entry
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.records import RecordDamaged

_LISTED = (
    "key", "study", "step", "algorithm", "size_bytes", "cost_seconds", "created", "last_used",
    "hits",
)  # fmt: skip
_OF_CHILD = ("key", "step", "algorithm", "is_present")
_COLUMNS, _TEXT = 12, 80


def listed(entry: Entry) -> dict[str, Any]:
    """Return the fields that a list of artifacts shows for each artifact, as JSON values."""
    return {name: getattr(entry, name) for name in _LISTED}


def describe(store: ArtifactStore, entry: Entry) -> dict[str, Any]:
    """Return a full description of an artifact, as JSON values.

    `files` is empty if the artifact was evicted. `contents` has a preview of each file, or
    `unreadable` with the reason. `children` are the artifacts that next steps made from the
    artifact. `lineage` is None if unknown.
    """
    folder, parts = artifact_folder(entry.key), entry.parts if entry.is_present else {}
    children = store.index.select(parent=entry.key, present_only=False)
    contents: dict[str, Any] = {}
    for name, part in parts.items():
        try:
            contents[name] = preview(decode(part.codec, store.files.read(folder, name, part)))
        except Exception as error:  # `verify` reports damage
            contents[name] = {"unreadable": str(error)}
    return {
        **listed(entry),
        "fold": entry.fold,
        "parent": entry.parent,
        "is_present": entry.is_present,
        "facts": dict(entry.summary),
        "files": [
            {"name": name, **asdict(part), "url": store.files.path(folder, part.file)}
            for name, part in parts.items()
        ],
        "contents": contents,
        "children": [{name: getattr(child, name) for name in _OF_CHILD} for child in children],
        "lineage": store.provenance(entry),
    }


def preview(value: Any) -> dict[str, Any]:
    """Return a summary of a matrix or an estimator, as JSON values.

    The summary of a matrix or frame has `shape`, `dtype` (matrices only), `rows` (the first five),
    `columns` (statistics of the first twelve by `pandas.DataFrame.describe`) and
    `columns_not_shown` (the number of further columns). The summary of other values, such as
    estimators, has `type` and `fitted` (fitted attributes as text).
    """
    import numpy as np  # like pandas and SciPy, too heavy for listing artifacts
    import pandas as pd
    from scipy import sparse

    if isinstance(value, pd.DataFrame):
        frame = value.iloc[:, :_COLUMNS]
    elif sparse.issparse(value):
        frame = pd.DataFrame(value[:, :_COLUMNS].toarray())
    elif isinstance(value, np.ndarray):
        matrix = value.reshape(len(value), prod(value.shape[1:]))
        frame = pd.DataFrame(matrix[:, :_COLUMNS])
    else:
        fitted: dict[str, str] = {}
        for name, attribute in sorted(getattr(value, "__dict__", {}).items()):
            if name.endswith("_") and not name.startswith("_"):
                text = " ".join(repr(attribute).split())
                fitted[name] = text if len(text) <= _TEXT else f"{text[:_TEXT]}..."
        return {"type": type(value).__qualname__, "fitted": fitted}
    described = frame.describe(include="all") if len(frame.columns) else frame
    return {
        "shape": list(value.shape),
        **({} if isinstance(value, pd.DataFrame) else {"dtype": str(value.dtype)}),
        "rows": json.loads(frame.head().to_json(orient="values", date_format="iso")),
        "columns": json.loads(described.to_json(date_format="iso")),
        "columns_not_shown": max(prod(value.shape[1:]) - _COLUMNS, 0),
    }


@dataclass
class Verification:
    """Result of `verify`.

    Attributes:
        checked: Number of artifacts and records checked.
        damaged: Keys of damaged artifacts, and ids of damaged records.
        missing: Keys and ids with a missing file.
        orphans: Folders that belong to no artifact and no record.
    """

    checked: int = 0
    damaged: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether every file is present and undamaged, and no folder is an orphan."""
        return not (self.damaged or self.missing or self.orphans)


def verify(store: ArtifactStore) -> Verification:
    """Compare every file in the store with its digest, ignoring concurrent changes."""
    found, filesystem = Verification(), store.files.filesystem
    folders = [*_folders(store, "cache"), *_folders(store, "records")]
    known = {f"{folder}/{place}" for folder, place in store.index.journal.unfinished()}
    for entry in store.index.select():
        folder = artifact_folder(entry.key)
        known.add(f"{folder}/{entry.place}")
        found.checked += 1
        if damage := _damage(store, folder, entry.parts):
            now = store.index.entries([entry.key])[entry.key]
            if now.is_present and now.place == entry.place:
                (found.missing if damage.is_missing else found.damaged).append(entry.key)
    for record in store.records.ids():
        try:
            parts, folder = store.records.parts(record), f"records/{record}"
            known.add(f"{folder}/{place_of(parts)}")
            found.checked += 1
            if (damage := _damage(store, folder, parts)) and store.records.parts(record) == parts:
                (found.missing if damage.is_missing else found.damaged).append(record)
        except RecordDamaged:  # removed during the check
            continue
    # Folders of artifacts evicted during the check are still in the journal, or gone.
    known |= {f"{folder}/{place}" for folder, place in store.index.journal.unfinished()}
    filesystem.invalidate_cache()
    unknown = sorted(folder for folder in folders if folder not in known)
    found.orphans = [f for f in unknown if filesystem.exists(store.files.path(f))]
    return found


def repair(store: ArtifactStore, found: Verification) -> None:
    """Remove damaged artifacts from the cache, and delete orphans. Damaged records stay."""
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
