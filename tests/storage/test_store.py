import logging
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from contracts.store import entry, made, present, put

from prefect_tune.storage import ArtifactStore, Made, StoreAddress, StoreRefused, writer
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.inspection import describe, find_artifacts, stats, verify
from prefect_tune.storage.key import artifact_folder


def folder_of(store: ArtifactStore, kept: Entry) -> Path:
    return Path(store.files.path("cache", kept.key[:2], kept.key, kept.place))


def test_what_was_written_is_read_back(store) -> None:
    kept = put(store, "a")
    found = store.index.entries([kept.key])[kept.key]
    assert found.parts == kept.parts
    assert found.summary == {"rows": 1000}
    read = store.read(found, ["train"])
    assert (read["train"] == made().parts["train"]).all()


def test_memory_is_a_store_too() -> None:
    store = ArtifactStore(StoreAddress("memory://test-memory"))
    kept = put(store, "a")
    assert (store.read(kept, ["train"])["train"] == made().parts["train"]).all()
    assert verify(store).is_sound


def test_an_artifact_is_made_once_and_then_served(store) -> None:
    calls = []

    def make() -> Made:
        calls.append(1)
        return made()

    first, made_now = store.get_or_make(entry("a"), {}, make)
    second, served = store.get_or_make(entry("a"), {}, make)
    assert (len(calls), made_now is not None, served) == (1, True, None)
    assert second.key == first.key
    totals = store.index.totals()
    assert (totals.hits, totals.misses, totals.seconds_saved) == (1, 1, 2.0)


def test_an_artifact_whose_record_is_gone_is_made_again(store) -> None:
    store.get_or_make(entry("a"), {}, made)
    _, again = store.get_or_make(entry("a"), {}, made, is_whole=lambda: False)
    assert again is not None


def test_least_recently_used_goes_first(store) -> None:
    size = put(store, "a").size_bytes
    store.set_budget(3 * size)
    put(store, "b")
    put(store, "c")
    store.index.usage.count_hit(store.index.entries(["a".ljust(64, "0")])["a".ljust(64, "0")])
    put(store, "d")
    assert present(store) == {"a", "c", "d"}
    assert store.index.totals().evicted == 1
    assert not folder_of(store, entry("b")).exists()


def test_what_is_cleared_takes_no_folder_from_those_who_write(store) -> None:
    kept = put(store, "a")
    temporary = Path(store.files.path("tmp"))
    assert temporary.is_dir()
    store.prune(0)
    store.files.clear("cache/aa/b", "never written")
    assert not Path(store.files.path(artifact_folder(kept.key))).exists()
    assert temporary.is_dir()


def test_a_summary_outlives_eviction(store) -> None:
    kept = put(store, "a")
    store.prune(0)
    found = store.index.entries([kept.key])[kept.key]
    assert not found.is_present
    assert found.summary == {"rows": 1000}
    assert store.read(found, ["train"]) is None


def test_the_budget_holds_after_each_put(store) -> None:
    size = put(store, "a").size_bytes
    store.set_budget(2 * size + 10)
    for i in range(10):
        put(store, f"b{i}", n=500 + 100 * (i % 6))
        on_disk = sum(
            file.stat().st_size
            for file in Path(store.files.path("cache")).rglob("*")
            if file.is_file()
        )
        assert store.index.totals().cache_bytes == on_disk <= 2 * size + 10


def test_what_is_larger_than_the_whole_budget_is_refused_and_evicts_nobody(store) -> None:
    size = put(store, "a").size_bytes
    store.set_budget(size)
    kept = put(store, "b", n=5000)
    assert not kept.is_present
    assert present(store) == {"a"}
    assert store.index.totals().refused == 1
    assert store.index.entries([kept.key])[kept.key].summary == {"rows": 5000}


def test_writing_a_key_again_counts_its_bytes_once(store) -> None:
    put(store, "a")
    kept = put(store, "a")
    assert store.index.totals().cache_bytes == kept.size_bytes


def test_a_smaller_budget_evicts_at_once(store) -> None:
    size = put(store, "a").size_bytes
    put(store, "b")
    store.set_budget(size)
    assert present(store) == {"b"}


def test_prune_leaves_records_alone(store) -> None:
    store.records.put("data/x", {"y": np.arange(3)})
    put(store, "a")
    assert store.prune(0) == 1
    assert store.records.get("data/x")["y"].tolist() == [0, 1, 2]


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("how", [damage, Path.unlink, lambda p: os.truncate(p, 10)])
def test_a_damaged_artifact_is_a_miss_and_a_warning(store, caplog, how) -> None:
    kept = put(store, "a")
    how(folder_of(store, kept) / "train.parquet")
    with caplog.at_level(logging.WARNING):
        assert store.read(kept, ["train"]) is None
    assert "is made again" in caplog.text
    assert present(store) == set()
    _, again = store.get_or_make(entry("a"), {}, made)
    assert again is not None
    assert verify(store).is_sound


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


def test_a_full_disk_keeps_the_cache_from_growing(store, monkeypatch, caplog) -> None:
    monkeypatch.setattr(writer, "FREE_BYTES_KEPT", 10**18)
    kept = put(store, "a")
    assert not kept.is_present
    assert "less than 1e+09 GB left" in caplog.text
    assert stats(store)["refused"] == 1


def test_a_cache_that_was_deleted_under_us_is_made_again(store) -> None:
    kept = put(store, "a")
    shutil.rmtree(store.files.path("cache"))
    assert store.read(kept, ["train"]) is None
    put(store, "a")
    assert verify(store).is_sound


def test_a_store_opened_twice_is_one_store(address, store) -> None:
    put(store, "a")
    other = ArtifactStore(address)
    assert other.id == store.id
    assert present(other) == {"a"}
    other.close()


@pytest.mark.usefixtures("store")
def test_a_store_with_another_index_is_refused(address, tmp_path) -> None:
    elsewhere = StoreAddress(address.url, f"sqlite:///{tmp_path}/other.sqlite")
    with pytest.raises(StoreRefused, match="do not belong together"):
        ArtifactStore(elsewhere)


@pytest.mark.usefixtures("store")
def test_an_index_with_another_store_is_refused(address, tmp_path) -> None:
    database = f"sqlite:///{address.url}/index.sqlite"
    with pytest.raises(StoreRefused, match=f"index of the store at {address.url}"):
        ArtifactStore(StoreAddress(str(tmp_path / "second"), database))


@pytest.mark.usefixtures("store")
def test_a_store_of_a_newer_format_is_refused(address) -> None:
    path = Path(address.url, "store.json")
    path.write_text(path.read_text().replace('"format":1', '"format":99'))
    with pytest.raises(StoreRefused, match=r"format 99.*use a newer version"):
        ArtifactStore(address)


def test_a_store_in_a_file_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="cannot be written"):
        ArtifactStore(StoreAddress(str(tmp_path / "file" / "store")))


def test_a_remote_store_without_a_database_is_refused() -> None:
    with pytest.raises(StoreRefused, match="name a PostgreSQL one with --database"):
        ArtifactStore(StoreAddress("s3://bucket/store"))


def test_a_store_at_an_unknown_kind_of_place_is_refused() -> None:
    with pytest.raises(StoreRefused, match="Protocol not known: gopher"):
        ArtifactStore(StoreAddress("gopher://hole/store", "sqlite://"))


def test_while_one_publishes_another_waits_and_is_served(store, address, monkeypatch) -> None:
    other = ArtifactStore(address)
    seen = []
    publish = store.files.publish

    def look_while_publishing(*args, **kwargs):
        parts = publish(*args, **kwargs)
        seen.append(other.index.entries(["a".ljust(64, "0")]))  # moved in, and not yet admitted
        return parts

    monkeypatch.setattr(store.files, "publish", look_while_publishing)
    kept, _ = store.get_or_make(entry("a"), {}, made)
    assert seen == [{}]
    served, again = other.get_or_make(entry("a"), {}, made)
    assert again is None
    assert other.read(served, ["train"]) is not None
    assert store.index.totals().cache_bytes == kept.size_bytes
    assert verify(store).is_sound
    other.close()


def test_who_reads_what_is_evicted_and_made_again_meanwhile_harms_nothing(store, caplog) -> None:
    former = put(store, "a")
    store.prune(0)
    put(store, "a")
    assert store.read(former, ["train"]) is None
    assert caplog.text == ""
    assert present(store) == {"a"}
    assert verify(store).is_sound


def test_closing_waits_for_uses_that_another_thread_is_writing(store, monkeypatch) -> None:
    begun, may_end, closed = threading.Event(), threading.Event(), threading.Event()
    flush = store.index.usage._flush

    def slow_flush() -> None:
        if not begun.is_set():
            begun.set()
            may_end.wait(10)
        flush()

    monkeypatch.setattr(store.index.usage, "_flush", slow_flush)
    store.index.usage.count_hit(put(store, "a"))
    assert begun.wait(10)
    closer = threading.Thread(target=lambda: (store.close(), closed.set()))
    closer.start()
    assert not closed.wait(0.3)
    may_end.set()
    closer.join(10)
    assert closed.is_set()
    assert store.database.engine.pool.checkedout() == 0
