"""The byte budget: what is admitted, what goes for it, and that it holds after each put."""

from pathlib import Path

from contracts.store import entry, present, put

from prefect_tune.storage import ArtifactStore, writer
from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.inspection import stats


def folder_of(store: ArtifactStore, kept: Entry) -> Path:
    return Path(store.files.path("cache", kept.key[:2], kept.key, kept.place))


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


def test_a_full_disk_keeps_the_cache_from_growing(store, monkeypatch, caplog) -> None:
    monkeypatch.setattr(writer, "FREE_BYTES_KEPT", 10**18)
    kept = put(store, "a")
    assert not kept.is_present
    assert "less than 1e+09 GB left" in caplog.text
    assert stats(store)["refused"] == 1
