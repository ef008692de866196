"""Artifacts from their making to their loss, what is evicted for them, and how stores open."""

import errno
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from contracts.store import entry, made, present, put, use
from hypothesis import given
from hypothesis import strategies as st
from other_user import run_as_other_user
from scipy import sparse

from prefect_tune.storage import artifacts
from prefect_tune.storage import database as database_module
from prefect_tune.storage.artifacts import (
    ArtifactStore,
    Made,
    MemoryTier,
    StoreAddress,
    StoreRefused,
)
from prefect_tune.storage.files import StoreAway
from prefect_tune.storage.index import Entry
from prefect_tune.storage.inspection import describe, preview, verify
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.local_files import make_private, make_private_file
from prefect_tune.storage.matrices import canonical


def folder_of(store: ArtifactStore, kept: Entry) -> Path:
    return Path(store.files.path("cache", kept.key[:2], kept.key, kept.place))


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_an_artifact_whose_record_is_gone_is_made_again(store) -> None:
    store.get_or_make(entry("a"), {}, made)
    _, again = store.get_or_make(entry("a"), {}, made, is_whole=lambda: False)
    assert again is not None


def test_what_was_made_before_the_lease_was_taken_is_served(store) -> None:
    put(store, "a")
    _, again = store.get_or_make(entry("a"), {}, made, is_missed=True)
    assert again is None


def test_what_is_cleared_takes_no_folder_from_those_who_write(store) -> None:
    kept = put(store, "a")
    temporary = Path(store.files.path("tmp"))
    assert temporary.is_dir()
    store.prune(0)
    store.files.clear("cache/aa/b", "never written")
    assert not Path(store.files.path(artifact_folder(kept.key))).exists()
    assert temporary.is_dir()


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
    assert store.index.totals().size_bytes == kept.size_bytes
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


def test_the_budget_holds_after_each_put(store) -> None:
    size = put(store, "a").size_bytes
    store.set_budget(2 * size + 10)
    for i in range(10):
        put(store, f"b{i}", n=500 + 100 * (i % 6))
        files = [f for f in Path(store.files.path("cache")).rglob("*") if f.is_file()]
        on_disk = sum(file.stat().st_size for file in files)
        assert store.index.totals().size_bytes == on_disk <= 2 * size + 10


def test_what_is_larger_than_the_whole_budget_is_refused_and_evicts_nobody(store) -> None:
    size = put(store, "a").size_bytes
    store.set_budget(size)
    kept = put(store, "b", n=5000)
    assert not kept.is_present
    assert present(store) == {"a"}
    assert store.index.totals().refused == 1
    assert store.index.entries([kept.key])[kept.key].summary == {"rows": 5000}


def test_a_full_disk_keeps_the_cache_from_growing(store, monkeypatch, caplog) -> None:
    monkeypatch.setattr(artifacts, "FREE_BYTES_KEPT", 10**18)
    kept = put(store, "a")
    assert not kept.is_present
    assert "less than 1e+09 GB left" in caplog.text
    assert store.index.totals().refused == 1


def test_a_full_disk_takes_no_sound_artifact_away(store, monkeypatch) -> None:
    kept = put(store, "a")
    monkeypatch.setattr(artifacts, "FREE_BYTES_KEPT", 10**18)
    _, again = store.get_or_make(entry("a"), {}, made, is_whole=lambda: False)
    assert again is not None
    assert store.index.entries([kept.key])[kept.key].place == kept.place
    assert store.read(kept, [*kept.parts]) is not None
    assert not store.index.journal.unfinished()
    assert store.index.totals().refused == 1


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
    use(store, "a")
    use(store, "b")
    by_step = {"rescale": first.size_bytes, "encode": second.size_bytes}
    assert {s: n.size_bytes for s, n in store.index.totals().steps.items()} == by_step
    store.forget(first)
    assert store.index.totals().steps["rescale"].size_bytes == 0
    assert store.index.bytes_present([first.key, second.key], second.study) == second.size_bytes
    assert store.index.totals().size_bytes == second.size_bytes


def test_of_what_a_study_made_last_it_is_known_what_is_gone(store) -> None:
    kept, gone = put(store, "a", study="one"), put(store, "b", study="one")
    put(store, "c", study="one")
    put(store, "c", study="two")
    store.forget(gone)
    assert sorted(store.index.keys_of("one")) == [key_of("a"), key_of("b")]
    assert store.index.keys_of("two") == [key_of("c")]
    assert store.index.keys_of("three") == []
    assert sorted(store.index.made_by("one")) == [
        ("rescale", "evicted", 1, gone.size_bytes), ("rescale", "present", 1, kept.size_bytes),
    ]  # fmt: skip
    assert store.index.made_by("three") == []


def test_entries_are_selected_and_cut(store) -> None:
    first = put(store, "a")
    child = put(store, "b", parent=first.key)
    put(store, "c", n=500, step="encode")

    def keys(**selection) -> list[str]:
        return [e.key.rstrip("0") for e in store.index.select(**selection)]

    assert keys() == ["c", "b", "a"]
    assert keys(limit=2) == ["c", "b"]
    assert keys(step="encode") == ["c"]
    assert keys(parent=first.key) == keys(beginning="b") == ["b"]
    store.forget(child)
    assert keys(beginning="b") == []
    assert keys(beginning="b", present_only=False) == ["b"]


def test_totals_have_what_is_not_written_yet(store) -> None:
    put(store, "a", seconds=2.0)
    use(store, "a")
    store.index.usage.count_miss("rescale")
    totals = store.index.totals()
    assert (totals.hits, totals.misses, totals.count) == (1, 1, 1)
    assert totals.seconds_saved == 2.0


def frozen(n: int) -> np.ndarray:
    return canonical(np.zeros(n, dtype=np.int8))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60)), max_size=40))
def test_it_never_holds_more_than_its_budget(puts) -> None:
    tier = MemoryTier(100)
    for place, n in puts:
        tier.put(str(place), "x", frozen(n))
        held = [tier.get(str(p), "x") for p in range(6)]
        assert sum(a.nbytes for a in held if a is not None) <= 100


def test_what_somebody_could_change_is_not_held() -> None:
    tier = MemoryTier(10_000)
    for value in (np.zeros(3), sparse.csr_array(np.eye(3)), [1, 2], "text"):
        tier.put("a", "x", value)
        assert tier.get("a", "x") is None
    tier.put("a", "x", canonical(sparse.csr_array(np.eye(3))))
    assert tier.get("a", "x") is not None


def test_a_second_read_comes_from_memory_unless_it_was_evicted_and_made_again(address) -> None:
    store = ArtifactStore(address)
    former = put(store, "a")
    store.memory.drop(former.place)
    first = store.read(former, ["train"])["train"]
    assert store.read(former, ["train"])["train"] is first
    assert not first.flags.writeable
    store.prune(0)
    assert store.memory.get(former.place, "train") is None
    again = store.write(entry("a"), made(7), {})
    assert len(store.read(again, ["train"])["train"]) == 7
    assert store.read(former, ["train"]) is None
    store.close()


def test_a_pickle_that_is_held_gives_each_reader_a_value_of_its_own(address) -> None:
    store = ArtifactStore(address)
    model = {"weights": np.arange(3.0), 1: "not JSON"}
    kept = store.write(entry("m"), Made({"model": model}, {}, 1.0, in_memory=("model",)), {})
    unheld = store.write(entry("n"), Made({"model": model}, {}, 1.0), {})
    assert store.memory.get(kept.place, "model") is not None
    assert store.memory.get(unheld.place, "model") is None
    store.files.delete(artifact_folder(kept.key))
    one, other = (store.read(kept, ["model"])["model"] for _ in range(2))
    assert one is not other
    assert one["weights"].tolist() == other["weights"].tolist() == [0, 1, 2]
    store.close()


def test_an_empty_array_can_be_looked_at() -> None:
    assert preview(np.empty(0))
    assert preview(np.arange(3.0))


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


def test_what_is_evicted_or_replaced_while_verify_reads_is_no_fault(store, monkeypatch) -> None:
    kept = put(store, "a")
    store.records.put("data/x", {"y": np.arange(3)})
    select, parts_of = store.index.select, store.records.parts

    def evict_first() -> list[Entry]:
        store.prune(0)
        return select()

    def replace_after(record: str) -> Any:
        parts = parts_of(record)
        monkeypatch.setattr(store.records, "parts", parts_of)
        store.records.put("data/x", {"y": np.arange(4)})
        return parts

    monkeypatch.setattr(store.index, "select", evict_first)
    monkeypatch.setattr(store.records, "parts", replace_after)
    assert verify(store).is_sound
    assert not folder_of(store, kept).exists()


def test_provenance_is_stored_with_the_data(store) -> None:
    kept = store.write(entry("a"), made(), {"dataset": "d", "steps": []})
    document = describe(store, store.index.entries([kept.key])[kept.key])
    assert document["lineage"] == {"dataset": "d", "steps": []}
    assert document["facts"] == {"rows": 1000}
    assert [f["name"] for f in document["files"]] == ["train"]
    assert Path(document["files"][0]["url"]).exists()


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_a_new_store_and_its_index_are_closed_to_other_users(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "store"
    for address in (
        StoreAddress(str(folder)),
        StoreAddress(str(tmp_path / "other"), f"sqlite:///{tmp_path / 'named.sqlite'}"),
    ):
        store = ArtifactStore(address)
        store.index.totals()
        store.close()
        assert mode_of(Path(address.url)) == 0o700
    folder.chmod(0o755)
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


@pytest.mark.slow
@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [(with_another_index, "not belong together"),
     (lambda a, f: StoreAddress(a.url, f"sqlite:///{f}/mistyped.sqlite"), r"mistyped\.sqlite"),
     (lambda a, f: StoreAddress(str(f / "2"), f"sqlite:///{a.url}/index.sqlite"), "/store"),
     (in_a_file, "cannot be written"),
     (lambda *_: StoreAddress("s3://bucket/store"), "--database")],
)  # fmt: skip
def test_a_store_that_is_not_whole_or_not_ours_is_refused(
    address, tmp_path, wrong, message
) -> None:
    with pytest.raises(StoreRefused, match=message):
        ArtifactStore(wrong(address, tmp_path))
    assert not (tmp_path / "mistyped.sqlite").exists()


def test_a_new_store_is_claimed_whole_or_not_at_all(address, monkeypatch) -> None:
    def write_half(path: Path, text: str) -> None:
        with path.open("w") as file:
            file.write(text[:8])
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write_half)
        with pytest.raises(StoreAway, match="cannot be written"):
            ArtifactStore(address)
    assert not (Path(address.url) / "store.json").exists()
    ArtifactStore(address).close()


def test_a_claim_whose_commit_failed_is_completed_at_the_next_start(address) -> None:
    ArtifactStore(address).close()
    with closing(sqlite3.connect(Path(address.url) / "index.sqlite")) as connection, connection:
        connection.execute("DELETE FROM store")
    store = ArtifactStore(address)
    assert store.id in (Path(address.url) / "store.json").read_text()
    store.records.put("data/x", {"v": 1})
    store.close()
    with closing(sqlite3.connect(Path(address.url) / "index.sqlite")) as connection, connection:
        connection.execute("DELETE FROM store")
    with pytest.raises(StoreRefused, match="not belong together"):  # it has contents
        ArtifactStore(address)


ODD_NAMES = (
    "100% data",
    "study #1",
    "a;b",
    "today's",
    "which?",
    "50%20x",
    "a&b=c",
    "[x]",
    "@",
    "é",
)


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_store_lies_in_a_folder_of_any_name(tmp_path, name) -> None:
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
@pytest.mark.parametrize("is_in_use", [False, True])
def test_a_read_only_store_is_read_and_refused_for_writing(is_in_use) -> None:
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
    assert "writable folder with --store" in refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "modes", "remedy"),
    [(make_private, (0o755, 0o755), "chmod 700"), (make_private, (0o755, 0o700), ""),
     (make_private_file, (0o755, 0o644), "chmod 600"), (make_private_file, (0o700, 0o644), "")],
)  # fmt: skip
def test_what_others_can_enter_is_left_as_it_is_and_warned_of_once(
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
