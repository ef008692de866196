"""What a store promises, whatever keeps its files and its index."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sqlalchemy import update

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.index import Entry
from prefect_tune.storage.inspection import repair, verify
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import publication_table

POSTGRES_IN_FULL = pytest.mark.parametrize(
    "either_address",
    ["sqlite", pytest.param("postgresql", marks=[pytest.mark.slow, pytest.mark.full])],
    indirect=True,
)
"""For tests with `either_address` or `either_store` whose mechanism does not differ by database."""


def entry(key: str, **values: Any) -> Entry:
    plain = {"parent": None, "study": "s", "step": "rescale", "algorithm": "minmax", "fold": 0}
    return Entry(key=key.ljust(64, "0"), cost_seconds=0.0, summary={}, **{**plain, **values})


def made(n: int = 1000, seconds: float = 2.0) -> Made:
    matrix = canonical(np.random.default_rng(n).random((n, 1)))
    return Made({"train": matrix}, {"rows": n}, seconds)


def put(
    store: ArtifactStore, key: str, n: int = 1000, seconds: float = 2.0, **values: Any
) -> Entry:
    return store.write(entry(key, **values), made(n, seconds), {"key": key})


def use(store: ArtifactStore, key: str) -> None:
    (found,) = store.index.entries([key.ljust(64, "0")]).values()
    store.index.count_hit(found)


def present(store: ArtifactStore) -> set[str]:
    return {e.key.rstrip("0") for e in store.index.select()}


class StoreContract:
    """Inherit, and have the fixture `address` name an empty store."""

    @pytest.fixture
    def store(self, address: StoreAddress) -> Iterator[ArtifactStore]:
        opened = ArtifactStore(address, memory_bytes=0)
        yield opened
        opened.close()

    def test_every_kind_of_value_comes_back(self, store) -> None:
        from sklearn.linear_model import LogisticRegression  # processes of other tests need none

        X, y = np.arange(40.0).reshape(20, 2), np.repeat(["a", "b"], 10)
        model = LogisticRegression().fit(X, y)
        frame = canonical(pd.DataFrame({"n": [1.5, None], "c": ["x", None]}))
        parts = {
            "dense": canonical(X.astype(np.float32)),
            "sparse": canonical(sparse.csr_array(np.eye(5))),
            "vector": canonical(np.arange(3)),
            "frame": frame,
            "estimator": model,
            "document": {"a": [1, None, "x"]},
        }
        kept = store.write(entry("a"), Made(parts, {}, 1.0), {})
        read = store.read(kept, list(parts))
        assert (read["dense"] == parts["dense"]).all()
        assert read["dense"].dtype == np.float32
        assert (read["sparse"].toarray() == np.eye(5)).all()
        assert read["vector"].tolist() == [0, 1, 2]
        pd.testing.assert_frame_equal(read["frame"], frame)
        assert (read["estimator"].predict(X) == y).all()
        assert read["document"] == parts["document"]

    def test_it_is_made_once_and_then_served(self, store, address) -> None:
        store.get_or_make(entry("a"), {}, made)
        other = ArtifactStore(address)
        served, again = other.get_or_make(entry("a"), {}, made)
        assert again is None
        assert (other.read(served, ["train"])["train"] == made().parts["train"]).all()
        other.close()
        totals = store.index.totals()
        assert (totals.hits, totals.misses) == (1, 1)

    def test_least_recently_used_goes_first_and_the_budget_holds(self, store) -> None:
        size = put(store, "a").size_bytes
        store.set_budget(3 * size)
        put(store, "b")
        put(store, "c")
        use(store, "a")
        put(store, "d")
        assert present(store) == {"a", "c", "d"}
        assert store.index.totals().size_bytes == 3 * size
        assert verify(store).is_sound

    def test_pinned_artifacts_stay_and_a_put_that_cannot_fit_is_refused(self, store) -> None:
        size = put(store, "a").size_bytes
        store.set_budget(2 * size)
        put(store, "b")
        store.index.pins.set([entry("a").key], "study s", 60)
        put(store, "c")
        assert present(store) == {"a", "c"}
        store.index.pins.set([entry("a").key, entry("c").key], "study s", 60)
        assert not put(store, "d").is_present
        assert present(store) == {"a", "c"}
        assert store.index.totals().refused == 1
        store.index.pins.release("study s")
        put(store, "d")
        assert present(store) == {"c", "d"}

    def test_a_pin_that_expired_holds_nothing(self, store) -> None:
        size = put(store, "a").size_bytes
        store.set_budget(size)
        store.index.pins.set([entry("a").key], "study s", -1)
        put(store, "b")
        assert present(store) == {"b"}

    def test_a_smaller_budget_is_kept_to_even_against_pins(self, store) -> None:
        size = put(store, "a").size_bytes
        put(store, "b")
        store.index.pins.set([entry("a").key], "study s", 60)
        store.set_budget(size)
        assert present(store) == {"a"}
        store.set_budget(1)
        assert present(store) == set()

    def test_without_pressure_all_is_kept_and_with_it_what_is_cheap_goes_first(self, store) -> None:
        store.read(put(store, "f", seconds=50.0), ["train"])  # its speed is known from now on
        store.index.usage.flush()
        store.prune(0)
        store.set_budget(10**9)
        put(store, "a", seconds=1e-9)
        put(store, "b", seconds=1e-9)
        size = put(store, "c", seconds=50.0).size_bytes
        assert present(store) == {"a", "b", "c"}
        store.set_budget(3 * size)
        use(store, "a")
        use(store, "b")
        put(store, "d", seconds=50.0)
        assert "c" in present(store)  # though it was used least recently
        put(store, "e", seconds=50.0)
        assert present(store) == {"c", "d", "e"}
        assert not put(store, "f", seconds=1e-9).is_present
        assert store.index.totals().refused == 1

    def test_summaries_outlive_eviction_and_children_their_parents(self, store) -> None:
        parent = put(store, "a")
        child = put(store, "b", parent=parent.key)
        use(store, "b")
        store.set_budget(child.size_bytes)
        found = store.index.entries([parent.key, child.key])
        assert [e.is_present for e in (found[parent.key], found[child.key])] == [False, True]
        assert found[parent.key].summary == {"rows": 1000}
        assert store.read(found[child.key], ["train"]) is not None

    @pytest.mark.parametrize("fault", ["flipped", "truncated", "missing"])
    def test_a_damaged_part_is_a_miss_and_one_warning(self, store, caplog, fault) -> None:
        kept = put(store, "a")
        path = store.files.path(artifact_folder(kept.key), kept.parts["train"].file)
        filesystem = store.files.filesystem
        data = bytearray(filesystem.cat_file(path))
        filesystem.rm(path)
        if fault != "missing":
            data[len(data) // 2] ^= 1
            filesystem.pipe_file(path, bytes(data[:-5] if fault == "truncated" else data))
        assert not verify(store).is_sound
        assert store.read(kept, ["train"]) is None
        assert store.read(kept, ["train"]) is None
        assert caplog.text.count("will be recomputed") == 1
        _, again = store.get_or_make(entry("a"), {}, made)
        assert again is not None
        assert verify(store).is_sound

    def test_repair_forgets_what_is_wrong_and_deletes_what_nobody_knows(self, store) -> None:
        kept, whole = put(store, "a"), put(store, "b")
        store.files.filesystem.rm(
            store.files.path(artifact_folder(kept.key), kept.parts["train"].file)
        )
        store.files.publish("cache/ff/" + "f" * 64, "0123", store.files.encode("x", {"y": "z"}))
        found = verify(store)
        assert found.missing == [kept.key]
        assert found.orphans == [f"cache/ff/{'f' * 64}/0123"]
        repair(store, found)
        assert verify(store).is_sound
        assert present(store) == {"b"}
        assert store.read(whole, ["train"])

    def test_what_a_dead_writer_left_is_swept_and_counts_nothing(self, store) -> None:
        folder = artifact_folder(entry("a").key)
        store.index.journal.begin(folder, "place")
        store.files.publish(folder, "place", store.files.encode(folder, {"x": 1}))
        assert verify(store).is_sound  # its writer may still live
        assert store.sweep() == 0
        dead = ProcessIdentity.this_process()._replace(started=0.0).to_text()
        with store.database.write() as connection:
            connection.execute(update(publication_table).values(holder=dead))
        assert store.sweep() == 1
        assert verify(store).is_sound
        assert not store.files.filesystem.exists(store.files.path(folder, "place"))
        assert store.index.totals().size_bytes == 0

    def test_records_are_apart_from_the_cache(self, store) -> None:
        store.records.put("data/x", {"y": canonical(np.arange(3))}, "s")
        put(store, "a")
        store.set_budget(1)
        store.prune(0)
        assert present(store) == set()
        assert store.records.get("data/x")["y"].tolist() == [0, 1, 2]
        store.records.put("data/x", {"y": canonical(np.arange(4))})
        assert store.records.get("data/x")["y"].tolist() == [0, 1, 2, 3]
        assert store.records.release("s") == ["data/x"]
        assert not store.records.exists("data/x")
        assert verify(store).is_sound
