"""Artifacts from their making to their loss, through the store."""

import logging
import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from contracts.store import entry, made, present, put

from prefect_tune.storage import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.key import artifact_folder


def folder_of(store: ArtifactStore, kept: Entry) -> Path:
    return Path(store.files.path("cache", kept.key[:2], kept.key, kept.place))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


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


def test_what_is_cleared_takes_no_folder_from_those_who_write(store) -> None:
    kept = put(store, "a")
    temporary = Path(store.files.path("tmp"))
    assert temporary.is_dir()
    store.prune(0)
    store.files.clear("cache/aa/b", "never written")
    assert not Path(store.files.path(artifact_folder(kept.key))).exists()
    assert temporary.is_dir()


def test_prune_leaves_records_alone(store) -> None:
    store.records.put("data/x", {"y": np.arange(3)})
    put(store, "a")
    assert store.prune(0) == 1
    assert store.records.get("data/x")["y"].tolist() == [0, 1, 2]


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


def test_a_cache_that_was_deleted_under_us_is_made_again(store) -> None:
    kept = put(store, "a")
    shutil.rmtree(store.files.path("cache"))
    assert store.read(kept, ["train"]) is None
    put(store, "a")
    assert verify(store).is_sound


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
