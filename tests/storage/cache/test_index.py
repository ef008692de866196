"""The index: what is known of artifacts, and totals that no broken transaction falsifies."""

import pytest
from contracts.store import entry, put, use

from prefect_tune.storage import database as database_module
from prefect_tune.storage.cache.entry import Selection
from prefect_tune.storage.schema import publication_table


def key_of(name: str) -> str:
    return entry(name).key


def test_entries_are_found_by_key_however_many_are_asked_for(store, monkeypatch) -> None:
    monkeypatch.setattr(database_module, "_KEYS_PER_QUERY", 2)
    kept = [put(store, name) for name in ("a", "b", "c", "d", "e")]
    asked = [*(e.key for e in kept), key_of("f")]
    found = store.index.entries(asked)
    assert {key: e.parts for key, e in found.items()} == {e.key: e.parts for e in kept}
    for study in (kept[0].study, "another"):  # whoever made them
        assert store.index.bytes_present(asked, study) == sum(e.size_bytes for e in kept)
    assert store.index.entries([]) == {}
    assert store.index.bytes_present([], "s") == 0


def test_bytes_are_those_in_the_cache(store) -> None:
    first, second = put(store, "a"), put(store, "b", step="encode")
    assert store.index.bytes_by_step() == {
        "rescale": first.size_bytes,
        "encode": second.size_bytes,
    }
    store.forget(first)
    assert store.index.bytes_by_step() == {"encode": second.size_bytes}
    assert store.index.bytes_present([first.key, second.key], second.study) == second.size_bytes
    assert store.index.totals().cache_bytes == second.size_bytes


def test_a_study_is_known_by_what_it_made_last(store) -> None:
    put(store, "a", study="one")
    put(store, "b", study="one")
    put(store, "b", study="two")
    assert store.index.keys_of("one") == [key_of("a")]
    assert store.index.keys_of("two") == [key_of("b")]
    assert store.index.keys_of("three") == []


def test_of_what_a_study_made_it_is_known_what_is_gone(store) -> None:
    kept, gone = put(store, "a", study="one"), put(store, "b", study="one")
    put(store, "c", study="two")
    store.forget(gone)
    assert sorted(store.index.made_by("one")) == [
        ("rescale", "evicted", 1, gone.size_bytes), ("rescale", "present", 1, kept.size_bytes),
    ]  # fmt: skip
    assert store.index.made_by("three") == []


def test_selections_are_filtered_sorted_and_cut(store) -> None:
    small = put(store, "a", n=100)
    large = put(store, "b", n=2000, algorithm="standardize", parent=small.key)
    put(store, "c", n=500, step="encode")

    def keys(**selection) -> list[str]:
        return [e.key.rstrip("0") for e in store.index.select(Selection(**selection))]

    assert keys(sort="size") == ["b", "c", "a"]
    assert keys(sort="size", limit=2) == ["b", "c"]
    assert keys(step="encode") == ["c"]
    assert keys(algorithm="standardize") == keys(parent=small.key) == keys(beginning="b") == ["b"]
    store.forget(large)
    assert keys(beginning="b") == []
    assert keys(beginning="b", present_only=False) == ["b"]


def test_what_must_be_made_is_noted_as_being_written(store) -> None:
    kept = put(store, "a")

    def look_up(name: str):
        with store.database.write() as connection:
            return store.index.look_up_to_make(connection, key_of(name), f"place-{name}")

    assert look_up("a").parts == kept.parts
    assert look_up("b") is None
    store.forget(kept)
    assert not look_up("a").is_present
    with store.database.read() as connection:
        places = set(connection.execute(publication_table.select()).scalars())
    assert {"place-a", "place-b"} <= places


def test_totals_have_what_is_not_written_yet(store) -> None:
    put(store, "a", seconds=2.0)
    use(store, "a")
    store.index.usage.count_miss("rescale")
    totals = store.index.totals()
    assert (totals.hits, totals.misses, totals.count) == (1, 1, 1)
    assert totals.seconds_saved == 2.0
    assert totals.budget_bytes == store.index.budget_bytes()


def test_uses_that_could_not_be_written_are_written_later(store) -> None:
    kept = put(store, "a")
    store.index.flush()
    use(store, "a")
    store.index.usage.count_miss("rescale")

    def broken_off() -> None:
        with store.index.changing() as connection:
            store.index.write_usage(connection)
            raise RuntimeError("broken off")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="broken off"):
            broken_off()
    totals = store.index.totals()
    assert (totals.hits, totals.misses) == (1, 1)
    assert store.index.entries([kept.key])[kept.key].hits == 1
