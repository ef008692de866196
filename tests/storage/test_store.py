"""Artifacts from creation to loss, records and their studies, and opening of stores."""

import errno
import shutil
import sqlite3
import stat
import subprocess
import tempfile
import threading
from collections import OrderedDict
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from contracts.store import entry, made, present, put, use
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from other_user import run_as_other_user
from processes import wait_for
from scipy import sparse
from sqlalchemy import text

from prefect_tune.storage import artifacts, files
from prefect_tune.storage import database as database_module
from prefect_tune.storage.artifacts import (
    ArtifactStore,
    Made,
    MemoryTier,
    StoreAddress,
    StoreRefused,
)
from prefect_tune.storage.files import StoreAway
from prefect_tune.storage.inspection import describe, verify
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.local_files import make_private, make_private_file
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.records import RecordDamaged, _linked, _released
from prefect_tune.storage.waiting import StoreLost


def test_step_finished_by_another_process_is_served_if_complete(store) -> None:
    put(store, "a")
    _, again = store.get_or_make(entry("a"), {}, made, is_missed=True)
    assert again is None
    _, again = store.get_or_make(entry("a"), {}, made, is_whole=lambda: False)
    assert again is not None


def test_reading_a_step_that_was_evicted_and_remade_is_a_harmless_miss(store, caplog) -> None:
    former = put(store, "a")
    store.prune(0)
    put(store, "a")
    assert store.read(former, ["train"]) is None
    assert caplog.text == ""
    assert present(store) == {"a"}
    assert verify(store).is_sound


def test_full_disk_stops_the_cache_from_growing_and_keeps_intact_steps(
    store, monkeypatch, caplog
) -> None:
    kept = put(store, "a")
    monkeypatch.setattr(artifacts, "FREE_BYTES_KEPT", 10**18)
    assert not put(store, "b").is_present
    assert "GB left" in caplog.text
    _, again = store.get_or_make(entry("a"), {}, made, is_whole=lambda: False)
    assert again is not None
    assert store.index.entries([kept.key])[kept.key].place == kept.place
    assert store.read(kept, [*kept.parts]) is not None
    assert not store.index.journal.unfinished()
    assert store.index.totals().refused == 2


def test_index_finds_any_number_of_entries_by_key_and_by_filters(store, monkeypatch) -> None:
    monkeypatch.setattr(database_module, "_KEYS_PER_QUERY", 2)
    kept = [put(store, name) for name in ("a", "b")]
    kept += [put(store, "c", parent=kept[0].key), put(store, "d", n=500, step="encode")]
    asked = [*(e.key for e in kept), entry("f").key]
    found = store.index.entries(asked)
    assert {key: e.parts for key, e in found.items()} == {e.key: e.parts for e in kept}
    for study in (kept[0].study, "another"):  # whoever made them
        assert store.index.bytes_present(asked, study) == sum(e.size_bytes for e in kept)

    def keys(**selection) -> list[str]:
        return [e.key.rstrip("0") for e in store.index.select(**selection)]

    assert keys() == ["d", "c", "b", "a"]
    assert keys(limit=2) == ["d", "c"]
    assert keys(step="encode") == ["d"]
    assert keys(parent=kept[0].key) == keys(beginning="c") == ["c"]
    for name in ("c", "d"):
        use(store, name)  # which is not written yet
    totals = store.index.totals()
    assert (totals.hits, totals.count, totals.seconds_saved) == (2, 4, 4.0)
    store.forget(kept[2])
    assert keys(beginning="c") == []
    assert keys(beginning="c", present_only=False) == ["c"]
    totals = store.index.totals()
    assert totals.size_bytes == store.index.bytes_present(asked, "s")
    assert totals.steps["encode"].size_bytes == kept[3].size_bytes


def test_evicted_steps_of_a_study_are_listed(store) -> None:
    kept, gone = put(store, "a", study="one"), put(store, "b", study="one")
    put(store, "c", study="one")
    last = put(store, "c", study="two")
    store.forget(gone)
    assert sorted(store.index.keys_of("one")) == [kept.key, gone.key]
    assert store.index.keys_of("two") == [last.key]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60)), max_size=40))
@settings(max_examples=40)
def test_memory_cache_never_exceeds_the_budget(puts) -> None:
    tier = MemoryTier(100)
    for place, n in puts:
        tier.put(str(place), "x", canonical(np.zeros(n, dtype=np.int8)))
        held = [tier.get(str(p), "x") for p in range(6)]
        assert sum(a.nbytes for a in held if a is not None) <= 100


def test_mutable_values_are_not_held_in_memory() -> None:
    tier = MemoryTier(10_000)
    for value in (np.zeros(3), sparse.csr_array(np.eye(3)), [1, 2], "text"):
        tier.put("a", "x", value)
        assert tier.get("a", "x") is None
    tier.put("a", "x", canonical(sparse.csr_array(np.eye(3))))
    assert tier.get("a", "x") is not None


def test_second_read_is_served_from_memory_unless_evicted_and_remade(address) -> None:
    store = ArtifactStore(address)
    former = put(store, "a")
    store.memory.drop(former.place)
    first = store.read(former, ["train"])["train"]
    assert store.read(former, ["train"])["train"] is first
    assert not first.flags.writeable
    store.prune(0)
    assert store.memory.get(former.place, "train") is None
    model = {"weights": np.arange(3.0), 1: "not JSON"}
    kept = store.write(entry("m"), Made({"model": model}, {}, 1.0, in_memory=("model",)), {})
    unheld = store.write(entry("n"), Made({"model": model}, {}, 1.0), {})
    assert store.memory.get(unheld.place, "model") is None
    store.files.delete(artifact_folder(kept.key))
    one, other = (store.read(kept, ["model"])["model"] for _ in range(2))
    assert one is not other  # each reader has a value of its own
    assert one["weights"].tolist() == other["weights"].tolist() == [0, 1, 2]
    store.close()


def test_provenance_is_stored_with_the_data(store) -> None:
    kept = store.write(entry("a"), made(), {"dataset": "d", "steps": []})
    document = describe(store, store.index.entries([kept.key])[kept.key])
    assert document["lineage"] == {"dataset": "d", "steps": []}
    assert document["facts"] == {"rows": 1000}
    assert [f["name"] for f in document["files"]] == ["train"]
    assert Path(document["files"][0]["url"]).exists()


def test_damaged_record_is_an_error_that_names_the_record(store) -> None:
    store.records.put("data/x", {"y": np.arange(3), "about": {"name": "n"}})
    assert list(store.records.get("data/x", ["y"])) == ["y"]
    assert store.records.is_whole("data/x")
    path = next(Path(store.files.path("records", "data", "x")).rglob("y.parquet"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordDamaged, match="data/x"):
        store.records.get("data/x")
    assert not store.records.is_whole("data/x")
    assert not store.records.is_whole("data/none")
    assert verify(store).damaged == ["data/x"]


def test_no_record_is_written_if_the_folder_of_records_is_gone(store) -> None:
    area = Path(store.files.path("records"))
    area.rename(area.with_name("elsewhere"))
    with pytest.raises(StoreLost, match="records is gone"):
        store.records.put("models/s", {"a": 1}, None)
    assert not area.exists()
    assert put(store, "a").is_present  # the cache's is made again


def test_copied_record_is_independent_of_the_original(store, monkeypatch) -> None:
    monkeypatch.setattr(files, "signing_key", lambda: b"secret")
    parts = {"model": Path("an object that is pickled"), "about": {"name": "n"}, "y": np.arange(3)}
    store.records.put("models/s", parts, "s")
    store.records.copy("models/s", "champions/nightly/s/1", "series nightly")
    store.records.put("models/s", {"model": Path("another one")}, "s")
    store.records.release("s")
    found = store.records.get("champions/nightly/s/1")  # the signature is valid for the copy
    assert (found["model"], found["about"]) == (parts["model"], parts["about"])
    assert found["y"].tolist() == [0, 1, 2]
    assert store.records.release("series nightly") == ["champions/nightly/s/1"]
    with pytest.raises(RecordDamaged, match="models/none"):
        store.records.copy("models/none", "champions/x", "series x")
    assert not store.records.exists("champions/x")


def test_removing_the_last_study_that_uses_a_record_removes_the_record(store) -> None:
    store.records.link(["predictions/a"], "first")  # before it is put
    for record in ("data/shared", "predictions/a", "predictions/b"):
        store.records.put(record, {"v": 1})
    store.records.link(["data/shared"], "first")
    store.records.link(["data/shared", "predictions/b", "predictions/b"], "second")
    store.records.link(["data/shared"], "second")
    assert store.records.release("first") == ["predictions/a"]
    assert store.records.release("second") == ["data/shared", "predictions/b"]
    assert store.records.ids() == []
    assert not Path(store.files.path("records", "data", "shared")).exists()


@pytest.mark.full
@pytest.mark.parametrize(
    ("users", "first_change", "gone"),
    [(["one", "two"], lambda c: _released("one", ["data/x"], None, c), ["data/x"]),
     (["two"], lambda c: _linked(["data/x"], "one", c), [])],
    ids=["last user removes the record", "next user keeps the record"],
)  # fmt: skip
def test_concurrent_changes_to_the_studies_of_a_record_are_serialized(
    tmp_path, postgres, users, first_change, gone
) -> None:
    address = StoreAddress(str(tmp_path / "store"), postgres.new_database())
    first, second, lookout = (ArtifactStore(address) for _ in range(3))
    first.records.put("data/x", {"v": 1})
    for user in users:
        first.records.link(["data/x"], user)
    released: list[str] = []
    other = threading.Thread(target=lambda: released.extend(second.records.release("two")))
    waits = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with first.database.write() as connection:
        first_change(connection)
        other.start()
        wait_for(lambda: not other.is_alive() or lookout.database.scalar(waits))
    other.join()
    assert released == gone
    assert first.records.exists("data/x") == (not gone)
    for store in (first, second, lookout):
        store.close()


def test_record_is_stored_once_if_the_answer_to_the_commit_was_lost(store) -> None:
    """If a connection is cut between the commit and the answer, the change is repeated."""
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


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_new_store_and_index_are_closed_to_other_users(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "store"
    for address in (
        StoreAddress(str(folder)),
        StoreAddress(str(tmp_path / "other"), f"sqlite:///{tmp_path / 'named.sqlite'}"),
    ):
        store = ArtifactStore(address)
        store.index.totals()
        store.close()
        assert mode_of(Path(address.url)) == 0o700
    files = [*folder.glob("index.sqlite*"), *tmp_path.glob("named.sqlite*")]
    assert len(files) >= 2
    assert {mode_of(file) for file in files} == {0o600}


def with_another_index(address: StoreAddress, folder: Path) -> StoreAddress:
    elsewhere = f"sqlite:///{folder}/other.sqlite"
    ArtifactStore(StoreAddress(str(folder / "other"), elsewhere)).close()
    return StoreAddress(address.url, elsewhere)


def in_a_file(_: StoreAddress, folder: Path) -> StoreAddress:
    (folder / "file").write_text("")
    return StoreAddress(str(folder / "file" / "store"))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [(with_another_index, "not belong together"),
     (lambda a, f: StoreAddress(a.url, f"sqlite:///{f}/mistyped.sqlite"), r"mistyped\.sqlite"),
     (lambda a, f: StoreAddress(str(f / "2"), f"sqlite:///{a.url}/index.sqlite"), "/store"),
     (in_a_file, "cannot be written"),
     (lambda *_: StoreAddress("s3://bucket/store"), "--database")],
)  # fmt: skip
def test_incomplete_or_foreign_store_is_refused(address, tmp_path, wrong, reason) -> None:
    with pytest.raises(StoreRefused, match=reason):
        ArtifactStore(wrong(address, tmp_path))
    assert not (tmp_path / "mistyped.sqlite").exists()


def test_new_store_is_claimed_completely_or_not_at_all(address, monkeypatch) -> None:
    def write_half(path: Path, text: str) -> None:
        with path.open("w") as file:
            file.write(text[:8])
        raise OSError(errno.ENOSPC, "no room")

    def forget_claim() -> None:
        with closing(sqlite3.connect(Path(address.url) / "index.sqlite")) as index, index:
            index.execute("DELETE FROM store")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write_half)
        with pytest.raises(StoreAway, match="cannot be written"):
            ArtifactStore(address)
    assert not (Path(address.url) / "store.json").exists()
    ArtifactStore(address).close()
    forget_claim()  # as if its commit had failed
    store = ArtifactStore(address)
    assert store.id in (Path(address.url) / "store.json").read_text()
    store.records.put("data/x", {"v": 1})
    store.close()
    forget_claim()
    with pytest.raises(StoreRefused, match="not belong together"):  # it has contents
        ArtifactStore(address)


@pytest.mark.parametrize("name", ["100% #1;&?=x", "today's", "50%20x", "[x]", "@", "é"])
def test_store_works_in_a_folder_of_any_name(tmp_path, name) -> None:
    address = StoreAddress(str(tmp_path / name / "store"))
    for _ in range(2):
        store = ArtifactStore(address)
        worker = ArtifactStore(store.address)
        worker.records.put("data/x", {"v": 1})
        assert store.records.get("data/x") == {"v": 1}
        worker.close()
        store.close()
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert [path.name for path in (tmp_path / name).iterdir()] == ["store"]


READ = """
store = ArtifactStore(StoreAddress(sys.argv[1]), is_read=True)
assert store.records.get("data/x") == {"v": 1}
try:
    store.records.put("data/x", {"v": 2})
except StoreLost as error:
    print(error)
store.close()
try:
    ArtifactStore(StoreAddress(sys.argv[1]))
except StoreRefused as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_in_use", [False, pytest.param(True, marks=pytest.mark.full)])
def test_read_only_store_can_be_read_and_refuses_writing(is_in_use) -> None:
    with TemporaryDirectory() as folder:  # below pytest's own, others could not read
        Path(folder).chmod(0o755)
        owner = ArtifactStore(StoreAddress(f"{folder}/store"))
        owner.records.put("data/x", {"v": 1})
        if not is_in_use:
            owner.close()
        assert (Path(folder) / "store" / "index.sqlite-wal").exists() == is_in_use
        subprocess.run(["chmod", "-R", "a+rX,a-w", folder], check=True)
        said = run_as_other_user(
            "import sys\n"
            "from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress, StoreRefused\n"
            "from prefect_tune.storage.waiting import StoreLost\n"
            "import sqlalchemy.dialects.sqlite, sqlite3, psutil, orjson\n"
            "import prefect_tune.storage.codec, prefect_tune.storage.matrices",
            READ,
            f"{folder}/store",
        )
        subprocess.run(["chmod", "-R", "u+w", folder], check=True)
        owner.close()
    read_only, refused = said.splitlines()
    assert "readonly" in read_only
    assert "--store" in refused


@pytest.mark.parametrize(
    ("make", "modes", "remedy"),
    [(make_private, (0o755, 0o755), "chmod 700"), (make_private, (0o755, 0o700), ""),
     (make_private_file, (0o755, 0o644), "chmod 600"), (make_private_file, (0o700, 0o644), "")],
)  # fmt: skip
def test_open_permissions_are_unchanged_and_warned_about_once(
    tmp_path, caplog, make, modes, remedy
) -> None:
    (around, mode), path = modes, tmp_path / "path"
    path.mkdir() if make is make_private else path.touch()
    path.chmod(mode)
    tmp_path.chmod(around)
    for _ in range(2):
        make(path)
    assert mode_of(path) == mode
    assert [f"{remedy} {path}" in message for message in caplog.messages] == [True] * bool(remedy)


KEYS = st.sampled_from([f"{i:x}{i:x}" for i in range(1, 9)])


class StoreAgainstModel(RuleBasedStateMachine):
    """Apply every rule to store and model; afterwards both are equal, without extra files."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.budget = 10_000_000
        self.store = ArtifactStore(StoreAddress(self.folder), self.budget)
        self.model: OrderedDict[str, tuple[int, int]] = OrderedDict()  # rows and bytes

    def shrink_model(self, limit: int) -> None:
        while sum(size for _, size in self.model.values()) > limit:
            self.model.popitem(last=False)

    @rule(key=KEYS, n=st.sampled_from([200, 500, 1500]))
    def put(self, key: str, n: int) -> None:
        kept = put(self.store, key, n)
        assert kept.is_present == (kept.size_bytes <= self.budget)
        if kept.is_present:
            self.model.pop(key, None)
            self.shrink_model(self.budget - kept.size_bytes)
            self.model[key] = (n, kept.size_bytes)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def get(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([*self.model]))
        (found,) = self.store.index.entries([entry(key).key]).values()
        self.store.index.count_hit(found)
        rows, _ = self.model[key]
        read = self.store.read(found, ["train"])["train"]
        assert (read == made(rows).parts["train"]).all()
        assert found.summary == {"rows": rows}
        self.model.move_to_end(key)

    @rule(limit=st.sampled_from([0, 5_000, 20_000]))
    def prune(self, limit: int) -> None:
        self.store.prune(limit)
        self.shrink_model(limit)

    @rule(budget=st.sampled_from([3_000, 12_000, 10_000_000]))
    def change_budget(self, budget: int) -> None:
        self.budget = budget
        self.store.set_budget(budget)
        self.shrink_model(budget)

    @precondition(lambda self: self.model)
    @rule()
    def lose_the_files_of_the_oldest(self) -> None:
        key, _ = self.model.popitem(last=False)
        (found,) = self.store.index.entries([entry(key).key]).values()
        shutil.rmtree(self.store.files.path("cache", found.key[:2], found.key))
        self.store.memory.drop(found.place)
        assert self.store.read(found, ["train"]) is None

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = ArtifactStore(StoreAddress(self.folder))

    @invariant()
    def both_hold_the_same(self) -> None:
        assert present(self.store) == set(self.model)
        files = [f for f in Path(self.store.files.path("cache")).rglob("*") if f.is_file()]
        on_disk = sum(file.stat().st_size for file in files)
        held = sum(size for _, size in self.model.values())
        assert self.store.index.totals().size_bytes == held == on_disk <= self.budget

    def teardown(self) -> None:
        assert verify(self.store).is_sound
        self.store.close()
        shutil.rmtree(self.folder)


TestStoreAgainstModel = pytest.mark.full(StoreAgainstModel.TestCase)
TestStoreAgainstModel.settings = settings(max_examples=10, stateful_step_count=25, deadline=None)
