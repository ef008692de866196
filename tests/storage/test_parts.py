"""Parts of artifacts and records: conversion to bytes, and safe reading."""

import json
import stat
from dataclasses import asdict, replace
from mmap import mmap
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contracts.store import entry, put
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from scipy import sparse
from sqlalchemy import update

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.codec import KEY_VARIABLE, decode, encode, layout, sign, signing_key
from prefect_tune.storage.files import Damaged, Files, new_place, place_of
from prefect_tune.storage.host_copies import HostCopies, mapped
from prefect_tune.storage.keys import digest
from prefect_tune.storage.local_files import atomic_file, atomic_folder, check_writable
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.schema import artifact_table

PARTS = {"train": canonical(np.arange(12.0).reshape(6, 2)), "estimator": {1, 2}}
FOLDER = "cache/aa/key"


@pytest.fixture(params=["local", "memory"])
def files(request, tmp_path) -> Files:
    return Files(str(tmp_path) if request.param == "local" else f"memory://{tmp_path}")


def publish(files: Files, folder: str = FOLDER, **besides: bytes):
    encoded = files.encode(folder, PARTS)
    return files.publish(folder, new_place(), encoded, besides), encoded


def test_publications_of_an_artifact_are_separate_and_cleared_separately(files) -> None:
    (first, _), (second, encoded) = publish(files), publish(files, **{"about.json": b"{}"})
    assert place_of(first) != place_of(second)
    files.clear(FOLDER, place_of(first))
    with pytest.raises(Damaged) as caught:
        files.read(FOLDER, "train", first["train"])
    assert caught.value.is_missing
    for name, (_, data) in encoded.items():
        assert bytes(files.read(FOLDER, name, second[name])) == bytes(data)
    about = files.path(FOLDER, place_of(second), "about.json")
    assert files.filesystem.cat_file(about) == b"{}"
    assert (files.free_bytes() == float("inf")) is not files.is_local


def test_failing_writer_leaves_no_files_and_deleting_removes_empty_folders(
    tmp_path, monkeypatch
) -> None:
    def broken_off(*_) -> None:
        raise OSError("no space left")

    files = Files(str(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", broken_off)
        with pytest.raises(OSError, match="no space left"):
            publish(files)
    assert not list(Path(files.path("tmp")).iterdir())
    assert not list(Path(files.path(FOLDER)).iterdir())
    publish(files)
    publish(files, "cache/aa/other")
    files.delete(FOLDER)
    assert [path.name for path in Path(files.path("cache/aa")).iterdir()] == ["other"]
    for _ in range(2):  # it is gone already
        files.delete("cache/aa/other")
    assert not Path(files.path("cache/aa")).exists()


def again(value):
    encoded = encode(value)
    return decode(encoded.codec, encoded.data)


def test_document_is_stored_as_json_unless_json_would_change_the_document() -> None:
    document = {"a": [1, 2.5, None, True], "b": {"c": "é"}}
    encoded = encode(document)
    assert encoded.codec == "json"
    assert json.loads(bytes(encoded.data)) == again(document) == document
    for changed in ({1: "a"}, [float("nan")], [float("inf")], (1, 2), {"a": {1, 2}}):
        assert layout(changed) == "pickle"
        assert repr(again(changed)) == repr(changed)


DTYPES = [np.float64, np.float32, np.int64, np.int32, np.int8, np.bool_]


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=10)
def test_dense_matrices_and_vectors_are_read_back_bit_by_bit(dtype, data) -> None:
    shapes = st_numpy.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=7)
    value = canonical(data.draw(st_numpy.arrays(dtype, shapes)))
    encoded = encode(value, mappable=True)
    changeable = bytearray(encoded.data)
    for back in (again(value), decode(encoded.codec, changeable)):
        assert back.dtype == value.dtype
        assert back.tobytes() == value.tobytes()
        assert back.shape == value.shape
        assert back.flags.c_contiguous
        assert not back.flags.writeable


@given(st_numpy.arrays(np.float64, st.tuples(*[st.integers(1, 6)] * 2), elements=st.floats(-1, 1)))
@settings(max_examples=20)
def test_sparse_matrices_are_read_back_as_sorted_csr(dense) -> None:
    value = canonical(sparse.csc_array(dense))
    encoded = encode(value, mappable=True)
    backs = [again(value), decode(encoded.codec, encoded.data)]
    for matrix in (value, *backs):
        assert matrix.format == "csr"
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
        assert matrix.has_sorted_indices
        assert not matrix.data.flags.writeable
        assert (matrix.toarray() == dense).all()
    coordinates = ([0, 0, 1], [2, 2, 0])
    summed = canonical(sparse.coo_array(([1.0, 2.0, 0.0], coordinates), shape=(2, 3)))
    assert (summed.nnz, summed.toarray()[0, 2]) == (1, 3.0)


def mixed_frame() -> pd.DataFrame:
    """Return columns of every kind, mixed, with missing values."""
    times = pd.to_datetime(["2020-01-01", None, "2020-01-02T03:04:05.000006"], format="ISO8601")
    columns = {
        "a": [1.5, np.nan, -2.0],
        "color": ["red", None, "blue"],
        "id": np.array([2**60 + 1, 2, 3]),
        "b": [0.0, -0.0, np.inf],
        "time": times,
        "nothing": pd.Series([None] * 3, dtype=object),
        "is_old": [True, False, True],
        "later": times[[2, 0, 0]],
        "is_new": [False, False, True],
        "small": np.array([1, 2, 3], dtype=np.int8),
    }
    return canonical(pd.DataFrame(columns))


@pytest.mark.parametrize("n", [3, 0])
def test_frames_are_read_back_from_parquet_and_as_views_of_arrow(n) -> None:
    frame = canonical(mixed_frame()[:n])
    encoded = encode(frame, mappable=True)
    back = decode(encoded.codec, encoded.data)
    for other in (back, again(frame)):
        pd.testing.assert_frame_equal(other, frame)
    raw = np.frombuffer(encoded.data, np.uint8)
    for name in ("a", "color", "id", "b", "time", "small") if n else ():
        is_categorical = isinstance(back[name].dtype, pd.CategoricalDtype)
        values = back[name].array.codes if is_categorical else back[name].to_numpy()
        assert np.shares_memory(values, raw), name
        assert not values.flags.writeable
    assert list(frame["color"].cat.categories) == (["blue", "red"] if n else [])


def test_columns_of_one_type_form_one_matrix_in_any_order() -> None:
    numbers = pd.DataFrame(np.arange(12.0).reshape(3, 4), columns=list("abcd"))
    frame = canonical(numbers.assign(e=["x", "y", "x"])[["a", "e", "b", "c", "d"]])
    encoded = encode(frame, mappable=True)
    matrix = decode(encoded.codec, encoded.data).drop(columns="e").to_numpy()
    assert (matrix == numbers.to_numpy()).all()
    assert np.shares_memory(matrix, np.frombuffer(encoded.data, np.uint8))


def test_every_arrow_and_parquet_reader_sees_missing_values(tmp_path) -> None:
    frame = mixed_frame()
    table = pa.ipc.open_file(encode(frame, mappable=True).data).read_all()
    table.validate(full=True)
    for name in ("color", "nothing", "time"):
        assert table[name].null_count == frame[name].isna().sum() > 0, name
    read = table.to_pandas().astype({"nothing": "category"})[list(frame)]
    pd.testing.assert_frame_equal(read.astype(object), frame.astype(object))
    path = tmp_path / "matrix.parquet"
    path.write_bytes(encode(canonical(np.arange(6.0).reshape(3, 2))).data)
    assert pq.read_table(path).column("values").to_pylist() == [[0, 1], [2, 3], [4, 5]]


def write_half(path: Path) -> None:
    path.write_text("half")
    raise ZeroDivisionError


def test_file_is_replaced_only_when_completely_written(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("former")
    with pytest.raises(ZeroDivisionError), atomic_file(target) as path:
        write_half(path)
    assert target.read_text() == "former"
    with atomic_file(target) as first, atomic_file(target) as second:
        first.write_text("first")
        second.write_text("second")
        assert first.read_text() == "first"
        assert target.read_text() == "former"
    assert target.read_text() == "first"  # the last to end
    assert list(tmp_path.iterdir()) == [target]


def test_half_written_folder_does_not_appear(tmp_path: Path) -> None:
    target = tmp_path / "below" / "out"
    with pytest.raises(ZeroDivisionError), atomic_folder(target) as folder:
        write_half(folder / "one")
    assert not any(target.parent.iterdir())
    with atomic_folder(target) as folder:
        (folder / "one").write_text("1")
    assert (target / "one").read_text() == "1"


@pytest.mark.parametrize("name", ["", "gone/out.txt"])
def test_unwritable_file_is_refused_before_the_work(tmp_path, name) -> None:
    with pytest.raises(OSError, match=tmp_path.name):
        check_writable(tmp_path / name)
    with pytest.raises(OSError, match=tmp_path.name), atomic_file(tmp_path / name):
        pytest.fail("the body must not run")
    check_writable(tmp_path / "new.txt")
    assert not any(tmp_path.iterdir())


class Bomb:
    """An object that an attacker would pickle."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


@pytest.fixture
def with_key(monkeypatch):
    def use(key: str | None) -> None:
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        if key is not None:
            monkeypatch.setenv(KEY_VARIABLE, key)
        signing_key.cache_clear()

    yield use
    monkeypatch.undo()
    signing_key.cache_clear()


def keep(store: ArtifactStore):
    return store.write(entry("a"), Made({"estimator": {1, 2}}, {}, 1.0), {})


@pytest.mark.parametrize("key_and_place", ["", None, "secret:cache/bb/b", "guess:{folder}"])
def test_pickle_without_a_valid_signature_is_never_loaded(
    store, with_key, tmp_path, caplog, key_and_place
) -> None:
    """Other users may write into the store and, except in the first case, into its index."""
    with_key("secret")
    kept = keep(store)
    folder, part = f"cache/{kept.key[:2]}/{kept.key}", kept.parts["estimator"]
    data = encode(Bomb(tmp_path / "exploded")).data
    Path(store.files.path(folder, part.file)).write_bytes(data)
    if key_and_place is not None:
        key, _, place = key_and_place.partition(":")
        place = f"{place.format(folder=folder)}/estimator"
        signature = sign(key.encode(), place, data) if key else "0" * 64
        planted = replace(part, digest=digest(data), size_bytes=len(data), signature=signature)
        parts = {"estimator": asdict(planted)}
        change = update(artifact_table).where(artifact_table.c.key == kept.key).values(parts=parts)
        with store.database.write() as connection:
            connection.execute(change)
    assert store.read(store.index.entries([kept.key])[kept.key], ["estimator"]) is None
    assert ("not signed" in caplog.text) == (key_and_place is not None)
    assert not (tmp_path / "exploded").exists()


def test_unsigned_step_result_is_recomputed_once_a_signing_key_is_set(store, with_key) -> None:
    with_key(None)
    kept = keep(store)
    assert kept.parts["estimator"].signature == ""
    store.records.put("models/s", {"model": {1, 2}})
    with_key("secret")
    assert store.read(kept, ["estimator"]) is None
    signed = keep(store)
    assert len(signed.parts["estimator"].signature) == 64
    assert store.read(signed, ["estimator"]) == {"estimator": {1, 2}}
    assert store.read(put(store, "b"), ["train"]) is not None  # a table runs no code
    with pytest.raises(RecordDamaged, match="not signed"):
        store.records.get("models/s")


CONTENT = b"content of a file"
NAME = digest(CONTENT)


@pytest.fixture
def copies(tmp_path, monkeypatch) -> HostCopies:
    """Copies of a store in an empty cache folder of the user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("HOME", str(tmp_path))  # from which macOS takes it
    return HostCopies("store")


def obtained(copies: HostCopies, content: bytes = CONTENT, name: str = NAME) -> tuple[bytes, str]:
    """Return the file from the copies; a download would bring this content."""
    data, found = copies.obtain(name, lambda path: path.write_bytes(content))
    return bytes(data), found


def test_file_is_downloaded_once_and_then_mapped_unless_damaged(copies) -> None:
    assert obtained(copies, b"else") == (b"else", digest(b"else"))
    assert not list(copies.folder.glob("*.arrow"))  # its digest is another one
    for content in (CONTENT, b"not downloaded"):
        assert obtained(copies, content) == (CONTENT, NAME)
    assert isinstance(copies.obtain(NAME, lambda _: None)[0].obj, mmap)
    for folder in (copies.folder, copies.folder.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (copy,) = copies.folder.glob("*.arrow")
    copy.write_bytes(b"x" + CONTENT[1:])
    assert obtained(copies) == (CONTENT, NAME)
    assert copy.read_bytes() == CONTENT


def test_unusable_copy_folder_gives_a_warning_and_no_copy(copies, caplog) -> None:
    copies.folder.parent.parent.mkdir(parents=True)
    copies.folder.parent.write_text("a file")
    assert copies.obtain(NAME, lambda _: pytest.fail("downloaded")) is None
    assert caplog.records


def test_copies_of_removed_files_and_partial_copies_are_swept(copies) -> None:
    copies.sweep([])
    assert not copies.folder.exists()
    obtained(copies)
    obtained(copies, b"b", digest(b"b"))
    (copies.folder / f"{digest(b'c')}.part").touch()
    copies.sweep([NAME])
    assert {path.stem for path in copies.folder.glob("*.*")} == {NAME}
    data, _ = copies.obtain(NAME, lambda _: pytest.fail("downloaded"))
    copies.remove([NAME, NAME])
    assert not list(copies.folder.glob("*.arrow"))
    assert bytes(data) == CONTENT


def test_data_of_a_remote_store_is_copied_counted_checked_and_removed(copies, tmp_path) -> None:
    address = StoreAddress(f"memory://{tmp_path}", f"sqlite:///{tmp_path}/index.sqlite")
    store, vector = ArtifactStore(address, memory_bytes=0), canonical(np.arange(1000.0))
    later = ArtifactStore(address)
    store.files.copies = later.files.copies = copies  # as if it were not in this process
    store.records.put("data/x", {"v": vector, "about": {"n": 1}}, "s", mappable=True)
    assert (store.records.get("data/x")["v"] == vector).all()
    (copy,) = copies.folder.glob("*.arrow")
    part, kept = store.records.parts("data/x")["v"], copy.read_bytes()
    assert mapped(copy)[1] == part.digest
    assert store.records.is_whole("data/x")
    path = store.files.path("records/data/x", part.file)
    store.files.filesystem.pipe_file(path, b"short")
    assert not store.records.is_whole("data/x")
    store.files.filesystem.rm(path)
    assert (store.records.get("data/x", ["v"])["v"] == vector).all()
    assert not store.records.is_whole("data/x")  # whatever this host has
    assert store.records.release("s") == ["data/x"]
    assert not copy.exists()
    copy.write_bytes(kept)  # as on a host that did not release it
    later.records.put("data/y", {"v": vector[:9]}, mappable=True)
    later.records.get("data/y")
    (other,) = copies.folder.glob("*.arrow")
    assert other != copy
    for one in (store, later):
        one.close()
