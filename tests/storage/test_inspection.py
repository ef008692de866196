"""Looking into a store: what is there, where it came from, and whether it is whole."""

from pathlib import Path

import numpy as np
from contracts.store import entry, made, put

from prefect_tune.storage import ArtifactStore
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.inspection import describe, find_artifacts, verify


def folder_of(store: ArtifactStore, kept: Entry) -> Path:
    return Path(store.files.path("cache", kept.key[:2], kept.key, kept.place))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_verify_tells_damaged_from_missing_from_orphaned(store) -> None:
    damaged, missing = put(store, "a"), put(store, "b")
    put(store, "c")
    store.records.put("data/x", {"y": np.arange(3)})
    damage(folder_of(store, damaged) / "train.parquet")
    (folder_of(store, missing) / "train.parquet").unlink()
    orphan = Path(store.files.path("cache", "ff", "ff" * 32))
    orphan.mkdir(parents=True)
    damage(next(Path(store.files.path("records", "data", "x")).rglob("y.parquet")))
    found = verify(store)
    assert found.checked == 4
    assert found.damaged == [damaged.key, "data/x"]
    assert found.missing == [missing.key]
    assert found.orphans == [f"cache/ff/{'ff' * 32}"]
    assert not found.is_sound


def test_provenance_stands_beside_the_data(store) -> None:
    kept = store.write(entry("a"), made(), {"dataset": "d", "steps": []})
    document = describe(store, store.index.entries([kept.key])[kept.key])
    assert document["lineage"] == {"dataset": "d", "steps": []}
    assert document["facts"] == {"rows": 1000}
    assert [f["name"] for f in document["files"]] == ["train"]
    assert Path(document["files"][0]["url"]).exists()


def test_an_artifact_is_found_by_the_beginning_of_its_key(store) -> None:
    put(store, "ab1")
    put(store, "ab2")
    assert [e.key[:3] for e in find_artifacts(store, "ab1")] == ["ab1"]
    assert len(find_artifacts(store, "ab")) == 2
    assert find_artifacts(store, "zz") == []
