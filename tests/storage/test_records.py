"""Records: who uses them, and how they are written to a bucket."""

import threading
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from contracts.store import entry

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.records import RecordDamaged, _linked, _released


def test_a_record_is_read_back_whole_or_in_part(store) -> None:
    store.records.put("data/x", {"y": np.arange(3), "about": {"name": "n"}})
    assert store.records.get("data/x")["about"] == {"name": "n"}
    assert list(store.records.get("data/x", ["y"])) == ["y"]
    assert store.records.exists("data/x")
    assert store.records.is_whole("data/x")


def test_a_damaged_record_is_an_error_that_names_it(store) -> None:
    store.records.put("data/x", {"y": np.arange(3)})
    path = next(Path(store.files.path("records", "data", "x")).rglob("y.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordDamaged, match=r"data/x.*digest differs"):
        store.records.get("data/x")
    assert not store.records.is_whole("data/x")
    assert not store.records.is_whole("data/none")


def test_a_copy_is_a_record_of_its_own(store, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_SIGNING_KEY", "secret")
    parts = {"model": Path("an object that is pickled"), "about": {"name": "n"}, "y": np.arange(3)}
    store.records.put("models/s", parts, "s")
    store.records.copy("models/s", "champions/nightly/s/1", "series nightly")
    store.records.put("models/s", {"model": Path("another one")}, "s")
    store.records.release("s")
    found = store.records.get("champions/nightly/s/1")  # the signature is valid for the copy
    assert (found["model"], found["about"]) == (parts["model"], parts["about"])
    assert found["y"].tolist() == [0, 1, 2]
    assert verify(store).damaged == []
    assert store.records.release("series nightly") == ["champions/nightly/s/1"]


def test_a_missing_record_is_not_copied(store) -> None:
    with pytest.raises(RecordDamaged, match="models/none"):
        store.records.copy("models/none", "champions/x", "series x")
    assert not store.records.exists("champions/x")


def test_a_record_goes_with_the_last_study_that_uses_it(store) -> None:
    for record in ("data/shared", "predictions/a", "predictions/b"):
        store.records.put(record, {"v": 1})
    store.records.link(["data/shared", "predictions/a"], "first")
    store.records.link(["data/shared", "predictions/b", "predictions/b"], "second")
    store.records.link(["data/shared"], "second")
    assert store.records.release("first") == ["predictions/a"]
    assert store.records.release("second") == ["data/shared", "predictions/b"]
    assert store.records.ids() == []
    assert not Path(store.files.path("records", "data", "shared")).exists()


@pytest.mark.parametrize(
    ("users", "first_change", "gone"),
    [(["one", "two"], lambda c: _released("one", ["data/x"], None, c), ["data/x"]),
     (["two"], lambda c: _linked(["data/x"], "one", c), [])],
    ids=["who releases last takes it away", "who is about to use it keeps it"],
)  # fmt: skip
def test_of_two_that_change_the_users_of_a_record_one_waits(
    tmp_path, postgres, users, first_change, gone
) -> None:
    address = StoreAddress(str(tmp_path / "store"), postgres.new_database())
    first, second = ArtifactStore(address), ArtifactStore(address)
    first.records.put("data/x", {"v": 1})
    for user in users:
        first.records.link(["data/x"], user)
    released: list[str] = []
    with first.database.write() as connection:
        first_change(connection)
        other = threading.Thread(target=lambda: released.extend(second.records.release("two")))
        other.start()
        other.join(0.5)  # it waits, or has looked already
    other.join()
    assert released == gone
    assert first.records.exists("data/x") == (not gone)
    for store in (first, second):
        store.close()


def test_a_record_whose_entry_was_committed_and_lost_its_answer_is_entered_once(store) -> None:
    """A connection may be cut between the commit and its answer: the change is made again."""
    store.records.put("models/s", {"m": 1})
    once = store.database.transact

    def twice(change):
        once(change)
        return once(change)

    store.database.transact = twice
    store.records.put("models/s", {"m": 2}, study="s")
    store.database.transact = once
    store.sweep()
    assert store.records.get("models/s") == {"m": 2}
    assert store.records.used_by("s") == ["models/s"]


def test_a_record_is_linked_before_it_is_put(store) -> None:
    store.records.link(["predictions/a"], "s")
    store.records.put("predictions/a", {"v": 1}, "t")
    assert store.records.release("t") == []
    assert store.records.release("s") == ["predictions/a"]


PARTS = {"train": {"a": 1}, "held_out": {"b": 2}, "estimator": {"c": 3}}


@pytest.mark.slow
def test_all_files_are_written_at_the_same_time_and_then_the_index(behind_proxy) -> None:
    (proxy, store), known = behind_proxy, []

    def look() -> None:
        known.append(store.index.entries([entry("a").key]))

    proxy.meeting = Barrier(len(PARTS) + 1, action=look, timeout=60)  # and its provenance
    kept = store.write(entry("a"), Made(PARTS, {}, 1.0), {})
    assert known
    assert not any(known)
    proxy.meeting = None
    assert store.read(kept, list(PARTS)) == PARTS
    assert verify(store).is_sound


@pytest.mark.slow
def test_many_records_go_with_few_requests(behind_proxy) -> None:
    proxy, store = behind_proxy
    for number in range(20):
        store.records.put(f"predictions/{number}", {"label": [1], "score": [2]}, "s")
    before = proxy.n_requests
    assert len(store.records.release("s")) == 20
    assert proxy.n_requests - before < 5
    assert store.files.filesystem.find(store.files.path("records")) == []
    assert store.index.journal.unfinished() == []
