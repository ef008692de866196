"""Arrow files that processes map, and copies of a remote store's on this host."""

import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from time import sleep
from uuid import uuid4

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pytest
from hammering import run_killed, run_together

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.codec import decode, encode
from prefect_tune.storage.host_copies import HostCopies, mapped
from prefect_tune.storage.keys import digest
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.records import RecordDamaged


def mixed_frame() -> pd.DataFrame:
    """Columns of each kind, those of one type apart from each other, with gaps."""
    times = pd.to_datetime(["2020-01-01", None, "2020-01-02T03:04:05.000006"], format="ISO8601")
    frame = pd.DataFrame(
        {
            "a": [1.5, np.nan, -2.0],
            "colour": ["red", None, "blue"],
            "id": np.array([2**60 + 1, 2, 3]),
            "b": [0.0, -0.0, np.inf],
            "time": times,
            "nothing": pd.Series([None] * 3, dtype=object),
            "is_old": [True, False, True],
            "later": times[[2, 0, 0]],
            "is_new": [False, False, True],
            "small": np.array([1, 2, 3], dtype=np.int8),
        }
    )
    return canonical(frame)


def read_back(value):
    encoded = encode(value, mappable=True)
    assert encoded.codec.startswith("arrow-")
    return decode(encoded.codec, encoded.data), np.frombuffer(encoded.data, np.uint8)


@pytest.mark.parametrize("n", [3, 0])
def test_frames_come_back_as_they_do_from_parquet(n) -> None:
    frame = canonical(mixed_frame()[:n])
    back, _ = read_back(frame)
    pd.testing.assert_frame_equal(back, frame)
    pd.testing.assert_frame_equal(back, decode("frame", encode(frame).data))


@pytest.mark.parametrize(
    "vector", [np.arange(5, dtype=np.int32), np.array([1.5, np.nan]), np.array([True, False])]
)
def test_vectors_come_back_as_views(vector) -> None:
    back, raw = read_back(canonical(vector))
    assert back.dtype == vector.dtype
    assert back.tobytes() == vector.tobytes()
    assert np.shares_memory(back, raw)
    assert not back.flags.writeable


def test_no_column_of_numbers_times_or_categories_is_copied() -> None:
    back, raw = read_back(mixed_frame()[["a", "colour", "id", "b", "time", "small"]])
    for name in back:
        is_categorical = isinstance(back[name].dtype, pd.CategoricalDtype)
        values = back[name].array.codes if is_categorical else back[name].to_numpy()
        assert np.shares_memory(values, raw), name


def test_columns_of_one_type_are_one_matrix_however_they_are_mixed() -> None:
    numbers = pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=list("abcd"))
    frame = canonical(numbers.assign(e=["x", "y", "x"])[["a", "e", "b", "c", "d"]])
    back, raw = read_back(frame)
    matrix = back.drop(columns="e").to_numpy()
    assert (matrix == numbers.to_numpy()).all()
    assert np.shares_memory(matrix, raw)


def test_any_arrow_reader_reads_a_frame_with_its_gaps() -> None:
    frame = mixed_frame()
    table = pa.ipc.open_file(encode(frame, mappable=True).data).read_all()
    table.validate(full=True)
    n_gaps = frame.isna().sum()
    for name in ("colour", "nothing", "time"):
        assert table[name].null_count == n_gaps[name] > 0, name
    read = table.to_pandas().astype({"nothing": "category"})[list(frame)]
    pd.testing.assert_frame_equal(read.astype(object), frame.astype(object))


def meet(folder: Path, n: int) -> None:
    """Wait for as many processes."""
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < n:
        sleep(0.01)


N_ROWS = 8_000_000


def load_and_wait(address: StoreAddress, folder: Path) -> None:
    """Load a record beside another process that does; it takes little memory of its own."""
    store = ArtifactStore(address)
    store.records.get("data/few")
    private_bytes = psutil.Process().memory_full_info().uss
    vector = store.records.get("data/many")["values"]
    meet(folder / "loaded", 2)
    assert vector[:: N_ROWS // 4].tolist() == [0, 2e6, 4e6, 6e6]
    meet(folder / "read", 2)
    grown = psutil.Process().memory_full_info().uss - private_bytes
    meet(folder / "measured", 2)  # what one has alone is private
    assert grown < vector.nbytes / 10, f"{grown / 1e6:.1f} MB"


@pytest.mark.slow
def test_processes_that_load_a_record_share_its_memory(address, tmp_path) -> None:
    store = ArtifactStore(address)
    store.records.put("data/few", {"values": canonical(np.arange(3.0))}, mappable=True)
    store.records.put("data/many", {"values": canonical(np.arange(float(N_ROWS)))}, mappable=True)
    store.close()
    run_together(load_and_wait, *[(address, tmp_path)] * 2)


def put_and_die(address: StoreAddress) -> None:
    """Be killed when all is written but the move to its place."""
    Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    ArtifactStore(address).records.put("data/x", {"v": canonical(np.arange(9))}, mappable=True)


@pytest.mark.slow
def test_what_a_killed_process_has_half_written_is_never_read(store) -> None:
    run_killed(put_and_die, store.address)
    assert list(Path(store.files.path("tmp")).rglob("*.arrow"))
    assert not store.records.exists("data/x")
    with pytest.raises(RecordDamaged):
        store.records.get("data/x")
    assert store.sweep() == 1
    assert not list(Path(store.files.root).rglob("*.arrow"))


@pytest.fixture(autouse=True)
def _own_caches(tmp_path, monkeypatch) -> None:
    """The user's cache folder is an empty one, in this process and those that it starts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("HOME", str(tmp_path))  # from which macOS takes it


@pytest.fixture
def copies() -> HostCopies:
    return HostCopies("store")


CONTENT = b"content of a file"
NAME = digest(CONTENT)


def written(content: bytes) -> Callable[[Path], object]:
    """A download of that content."""
    return lambda path: path.write_bytes(content)


def no_download(_: Path) -> None:
    raise AssertionError("downloaded")


def test_a_file_is_downloaded_once_and_then_mapped(copies) -> None:
    for download in (written(CONTENT), no_download):
        data, found = copies.obtain(NAME, download)
        assert (bytes(data), found) == (CONTENT, NAME)
    for folder in (copies.folder, copies.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_damaged_copy_is_downloaded_again(copies) -> None:
    copies.obtain(NAME, written(CONTENT))
    (copy,) = copies.folder.glob("*.arrow")
    copy.write_bytes(b"x" + CONTENT[1:])
    data, found = copies.obtain(NAME, written(CONTENT))
    assert (bytes(data), found) == (CONTENT, NAME)
    assert copy.read_bytes() == CONTENT


def test_a_download_with_another_digest_is_not_kept(copies) -> None:
    assert copies.obtain(NAME, written(b"else"))[1] == digest(b"else")
    assert not list(copies.folder.glob("*.arrow"))
    assert copies.obtain(NAME, written(CONTENT))[1] == NAME


def test_without_a_place_for_copies_there_is_a_warning_and_no_copy(copies, caplog) -> None:
    copies.folder.parent.parent.mkdir(parents=True)
    copies.folder.parent.write_text("a file")
    assert copies.obtain(NAME, no_download) is None
    assert caplog.records


def test_copies_go_that_the_store_no_longer_has_and_half_ones(copies) -> None:
    copies.sweep([])
    assert not copies.folder.exists()
    copies.obtain(NAME, written(CONTENT))
    copies.obtain(digest(b"b"), written(b"b"))
    (copies.folder / f"{digest(b'c')}.part").touch()
    copies.sweep([NAME])
    assert {path.stem for path in copies.folder.glob("*.*")} == {NAME}
    data, _ = copies.obtain(NAME, no_download)
    copies.remove([NAME, NAME])
    assert not list(copies.folder.glob("*.arrow"))
    assert bytes(data) == CONTENT


def obtain_together(log: Path, folder: Path) -> None:
    def download(path: Path) -> None:
        with log.open("a") as file:
            file.write("downloaded\n")
        sleep(0.5)
        path.write_bytes(CONTENT)

    meet(folder, 3)
    data, found = HostCopies("store").obtain(NAME, download)
    assert (bytes(data), found) == (CONTENT, NAME)


def obtain_and_die() -> None:
    def download(path: Path) -> None:
        path.write_bytes(CONTENT[:5])
        os.kill(os.getpid(), signal.SIGKILL)

    HostCopies("store").obtain(NAME, download)


@pytest.mark.slow
def test_one_of_several_processes_downloads_also_after_one_was_killed(copies, tmp_path) -> None:
    run_killed(obtain_and_die)
    assert list(copies.folder.glob("*.part"))
    run_together(obtain_together, *[(tmp_path / "log", tmp_path / "met")] * 3)
    assert (tmp_path / "log").read_text() == "downloaded\n"
    assert not list(copies.folder.glob("*.part"))


@pytest.fixture
def remote(bucket, tmp_path) -> Iterator[ArtifactStore]:
    address = StoreAddress(f"s3://{bucket}/{uuid4().hex}", f"sqlite:///{tmp_path}/index.sqlite")
    opened = ArtifactStore(address, memory_bytes=0)
    yield opened
    opened.close()


def test_data_of_a_remote_store_is_copied_counted_and_removed(remote) -> None:
    vector = canonical(np.arange(1000.0))
    remote.records.put("data/x", {"v": vector, "about": {"n": 1}}, "s", mappable=True)
    read = remote.records.get("data/x")["v"]
    assert (read == vector).all()
    (copy,) = remote.files.copies.folder.glob("*.arrow")
    part = remote.records.parts("data/x")["v"]
    assert mapped(copy)[1] == part.digest
    remote.files.filesystem.rm(remote.files.path("records/data/x", part.file))
    assert (remote.records.get("data/x", ["v"])["v"] == vector).all()
    assert not remote.records.is_whole("data/x")  # whatever this host has
    assert remote.records.release("s") == ["data/x"]
    assert not copy.exists()


def test_data_of_a_remote_store_is_checked_by_its_copy(remote, monkeypatch) -> None:
    vector = canonical(np.arange(1000.0))
    remote.records.put("data/x", {"v": vector, "about": {"n": 1}}, "s", mappable=True)
    fetched, fetch = [], remote.files.filesystem.cat_file
    monkeypatch.setattr(
        remote.files.filesystem, "cat_file", lambda path: fetched.append(path) or fetch(path)
    )
    assert remote.records.is_whole("data/x")
    assert [path.endswith("about.json") for path in fetched] == [True]
    part = remote.records.parts("data/x")["v"]
    remote.files.filesystem.pipe_file(remote.files.path("records/data/x", part.file), b"short")
    assert not remote.records.is_whole("data/x")


def test_another_host_drops_its_copies_of_what_was_removed(remote) -> None:
    for name in ("x", "y"):
        vector = canonical(np.full(10, float(ord(name))))
        remote.records.put(f"data/{name}", {"v": vector}, name, mappable=True)
        remote.records.get(f"data/{name}")
    stale = remote.records.parts("data/x")["v"]
    folder = remote.files.copies.folder
    kept = (folder / f"{stale.digest}.arrow").read_bytes()
    remote.records.release("x")
    (folder / f"{stale.digest}.arrow").write_bytes(kept)  # as on a host that did not release it
    later = ArtifactStore(remote.address)
    later.records.get("data/y")
    later.close()
    assert {path.stem for path in folder.glob("*.arrow")} == {
        later.records.parts("data/y")["v"].digest
    }
