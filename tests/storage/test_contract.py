"""Contract of a store, for every place of files and index."""

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
from contracts.store import entry, made, present, put, use
from sqlalchemy import update

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.inspection import repair, verify
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import publication_table

ELSEWHERE = [pytest.mark.slow, pytest.mark.full]


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=ELSEWHERE),
        pytest.param("s3 and postgresql", marks=ELSEWHERE),
    ]
)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    local = StoreAddress(str(tmp_path / "store"))
    if request.param == "sqlite":
        return local
    on_server = replace(local, database=request.getfixturevalue("postgres").new_database())
    if request.param == "postgresql":
        return on_server
    return replace(on_server, url=f"s3://{request.getfixturevalue('bucket')}/{uuid4().hex}")


def test_step_result_is_made_once_and_then_served(store, address) -> None:
    store.get_or_make(entry("a"), {}, made)
    other = ArtifactStore(address)
    served, again = other.get_or_make(entry("a"), {}, made)
    assert again is None
    assert (other.read(served, ["train"])["train"] == made().parts["train"]).all()
    other.close()
    totals = store.index.totals()
    assert (totals.hits, totals.misses) == (1, 1)


def test_least_recently_used_step_is_evicted_first_within_the_budget(store) -> None:
    size = put(store, "a").size_bytes
    store.set_budget(3 * size)
    put(store, "b")
    put(store, "c")
    use(store, "a")
    put(store, "d")
    assert present(store) == {"a", "c", "d"}
    assert store.index.totals().size_bytes == 3 * size
    assert verify(store).is_sound


def test_pinned_steps_stay_and_a_put_that_cannot_fit_is_refused(store) -> None:
    a, c = entry("a").key, entry("c").key
    size = put(store, "a").size_bytes
    store.set_budget(2 * size)
    put(store, "b")
    store.index.pins.set([a], "study s", 60)
    put(store, "c")
    assert present(store) == {"a", "c"}
    store.index.pins.set([a, c], "study s", 60)
    assert not put(store, "d").is_present
    assert present(store) == {"a", "c"}
    assert store.index.totals().refused == 1
    store.index.pins.release("study s")
    store.index.pins.set([c], "study s", -1)  # it has expired
    put(store, "d")
    put(store, "e")
    assert present(store) == {"d", "e"}


def test_nothing_is_evicted_without_pressure_and_cheap_steps_go_first(store) -> None:
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


@pytest.mark.parametrize("fault", ["flipped", "truncated", "missing"])
def test_damaged_part_is_a_miss_with_one_warning(store, caplog, fault) -> None:
    kept = put(store, "a")
    path = store.files.path(artifact_folder(kept.key), kept.parts["train"].file)
    data = bytearray(store.files.filesystem.cat_file(path))
    store.files.filesystem.rm(path)
    if fault != "missing":
        data[len(data) // 2] ^= 1
        store.files.filesystem.pipe_file(path, bytes(data[:-5] if fault == "truncated" else data))
    found = verify(store)
    assert [*found.damaged, *found.missing] == [kept.key]
    assert bool(found.missing) == (fault == "missing")
    for _ in range(2):
        assert store.read(kept, ["train"]) is None
    assert caplog.text.count("will be recomputed") == 1
    _, again = store.get_or_make(entry("a"), {}, made)
    assert again is not None
    assert verify(store).is_sound


def test_repair_forgets_damaged_steps_and_deletes_unknown_files(store) -> None:
    kept, whole = put(store, "a"), put(store, "b")
    path = store.files.path(artifact_folder(kept.key), kept.parts["train"].file)
    store.files.filesystem.rm(path)
    store.files.publish("cache/ff/" + "f" * 64, "0123", store.files.encode("x", {"y": "z"}))
    found = verify(store)
    assert found.missing == [kept.key]
    assert found.orphans == [f"cache/ff/{'f' * 64}/0123"]
    repair(store, found)
    assert verify(store).is_sound
    assert present(store) == {"b"}
    assert store.read(whole, ["train"])


def test_files_of_a_dead_writer_are_swept_and_do_not_count_toward_the_size(store) -> None:
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


def test_records_are_separate_from_the_cache(store) -> None:
    store.records.put("data/x", {"y": canonical(np.arange(3))}, "s")
    put(store, "a")
    store.set_budget(1)
    assert present(store) == set()
    assert store.records.get("data/x")["y"].tolist() == [0, 1, 2]
    store.records.put("data/x", {"y": canonical(np.arange(4))})
    assert store.records.get("data/x")["y"].tolist() == [0, 1, 2, 3]
    assert store.records.release("s") == ["data/x"]
    assert not store.records.exists("data/x")
    assert verify(store).is_sound
