"""Parts of artifacts and records: how values become bytes, and when bytes are read."""

import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from contracts.store import entry, put
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from scipy import sparse
from sqlalchemy import update

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreRefused
from prefect_tune.storage.codec import KEY_VARIABLE, decode, encode, layout, sign, signing_key
from prefect_tune.storage.files import Damaged, Files, new_place, place_of
from prefect_tune.storage.keys import digest
from prefect_tune.storage.local_files import atomic_file, atomic_folder, check_writable
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.schema import artifact_table
from prefect_tune.storage.waiting import StoreLost

PARTS = {"train": canonical(np.arange(12.0).reshape(6, 2)), "estimator": {1, 2}}

FOLDER = "cache/aa/key"


@pytest.fixture
def local(tmp_path) -> Files:
    return Files(str(tmp_path))


@pytest.fixture(params=["local", "memory"])
def files(request, tmp_path) -> Files:
    if request.param == "local":
        return request.getfixturevalue("local")
    return Files(f"memory://{tmp_path}")


def publish(files: Files, folder: str = FOLDER, **besides: bytes):
    encoded = files.encode(folder, PARTS)
    return files.publish(folder, new_place(), encoded, besides), encoded


def test_parts_come_back_as_they_were_written(files) -> None:
    parts, encoded = publish(files, **{"about.json": b"{}"})
    for name, (_, data) in encoded.items():
        assert bytes(files.read(FOLDER, name, parts[name])) == bytes(data)
    about = files.path(FOLDER, place_of(parts), "about.json")
    assert files.filesystem.cat_file(about) == b"{}"


def test_each_publication_has_a_place_of_its_own_and_goes_alone(files) -> None:
    (first, _), (second, _) = publish(files), publish(files)
    assert place_of(first) != place_of(second)
    files.clear(FOLDER, place_of(first))
    with pytest.raises(Damaged, match="is missing") as caught:
        files.read(FOLDER, "train", first["train"])
    assert caught.value.is_missing
    assert files.read(FOLDER, "train", second["train"])


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"x" + data[1:]])
def test_other_bytes_are_damage(files, change) -> None:
    parts, encoded = publish(files)
    for name, (_, data) in encoded.items():
        files.filesystem.pipe_file(files.path(FOLDER, parts[name].file), change(bytes(data)))
        with pytest.raises(Damaged, match="digest differs") as caught:
            files.read(FOLDER, name, parts[name])
        assert not caught.value.is_missing


def test_a_writer_that_fails_leaves_nothing(local, monkeypatch) -> None:
    def broken_off(*_) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "rename", broken_off)
    with pytest.raises(OSError, match="no space left"):
        publish(local)
    assert not list(Path(local.path("tmp")).iterdir())
    assert not list(Path(local.path(FOLDER)).iterdir())


def test_records_are_not_written_where_their_area_is_gone(store) -> None:
    area = Path(store.files.path("records"))
    area.rename(area.with_name("elsewhere"))
    with pytest.raises(StoreLost, match="records is gone"):
        store.records.put("models/s", {"a": 1}, None)
    assert not area.exists()
    assert put(store, "a").is_present  # the cache's is made again


def test_deleting_takes_the_folder_above_when_it_is_empty(local) -> None:
    publish(local)
    publish(local, "cache/aa/other")
    local.delete(FOLDER)
    assert [path.name for path in Path(local.path("cache/aa")).iterdir()] == ["other"]
    local.delete("cache/aa/other")
    local.delete("cache/aa/other")  # which is gone already
    assert not Path(local.path("cache/aa")).exists()


def test_an_empty_part_is_read_too(local) -> None:
    encoded = {"train": (local.encode(FOLDER, PARTS)["train"][0], b"")}
    parts = local.publish(FOLDER, new_place(), encoded)
    with pytest.raises(Damaged, match="digest differs"):
        local.read(FOLDER, "train", parts["train"])


def test_only_a_disk_can_be_full(files) -> None:
    assert files.free_bytes() > 0
    assert (files.free_bytes() == float("inf")) is not files.is_local


def test_an_unknown_kind_of_place_is_refused() -> None:
    with pytest.raises(StoreRefused, match="gopher://hole"):
        Files("gopher://hole")


def again(value):
    encoded = encode(value)
    return decode(encoded.codec, encoded.data)


def test_a_document_is_json_and_what_json_would_change_is_not() -> None:
    document = {"a": [1, 2.5, None, True], "b": {"c": "é"}}
    encoded = encode(document)
    assert encoded.codec == "json"
    assert json.loads(bytes(encoded.data)) == again(document) == document
    for changed in ({1: "a"}, [float("nan")], [float("inf")], (1, 2), {"a": {1, 2}}):
        assert layout(changed) == "pickle"
        assert repr(again(changed)) == repr(changed)


def test_large_buffers_of_a_pickle_are_not_copied_when_read() -> None:
    encoded = encode([np.arange(1000.0)])
    (array,) = decode(encoded.codec, encoded.data)
    assert encoded.codec == "pickle"
    assert array.tolist() == list(range(1000))
    assert np.shares_memory(array, np.frombuffer(encoded.data, np.uint8))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown codec 'tar'"):
        decode("tar", encode(canonical(np.zeros(3))).data)


SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 6))
DTYPES = [np.float64, np.float32, np.int64, np.int32, np.int8, np.bool_]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
@settings(max_examples=25)
def test_dense_matrices_and_vectors_come_back_bit_by_bit(dtype, data) -> None:
    shapes = st_numpy.array_shapes(min_dims=1, max_dims=2, min_side=1, max_side=7)
    value = canonical(data.draw(st_numpy.arrays(dtype, shapes)))
    back = again(value)
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes()
    assert back.shape == value.shape
    assert back.flags.c_contiguous
    assert not back.flags.writeable


@pytest.mark.slow
@given(st_numpy.arrays(np.float64, SHAPES, elements=st.sampled_from([0, 1.5, -2])))
def test_sparse_matrices_come_back_as_sorted_csr(dense) -> None:
    value = canonical(sparse.csc_array(dense))
    mapped = encode(value, mappable=True)
    backs = [again(value), decode(mapped.codec, mapped.data)]
    for matrix in (value, *backs):
        assert matrix.format == "csr"
        assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
        assert matrix.has_sorted_indices
        assert not matrix.data.flags.writeable
        assert (matrix.toarray() == dense).all()
    for part in ("indices", "indptr", "data"):
        for back in backs:
            assert getattr(back, part).tobytes() == getattr(value, part).tobytes()


def test_duplicates_and_explicit_zeros_leave_a_sparse_matrix() -> None:
    coordinates = ([0, 0, 1], [2, 2, 0])
    value = canonical(sparse.coo_array(([1.0, 2.0, 0.0], coordinates), shape=(2, 3)))
    assert value.nnz == 1
    assert value.toarray()[0, 2] == 3.0


def test_frames_come_back_with_numbers_times_and_sorted_categories() -> None:
    times = ["2020-01-01T00:00:00", None, "2020-01-02T03:04:05.000006"]
    columns = {
        "number": [1.5, np.nan, -2.0],
        "id": np.array([2**60 + 1, 2, 3]),
        "text": ["b", None, "a"],
        "time": pd.to_datetime(times, format="ISO8601"),
    }
    value = canonical(pd.DataFrame(columns, index=[7, 8, 9]))
    back = again(value)
    pd.testing.assert_frame_equal(back, value)
    assert back["id"].iloc[0] == 2**60 + 1
    assert list(back["text"].cat.categories) == ["a", "b"]
    assert list(back.index) == [0, 1, 2]


def test_any_parquet_reader_reads_a_dense_matrix(tmp_path) -> None:
    path = tmp_path / "matrix.parquet"
    path.write_bytes(encode(canonical(np.arange(6.0).reshape(3, 2))).data)
    assert pq.read_table(path).column("values").to_pylist() == [[0, 1], [2, 3], [4, 5]]
    assert pd.read_parquet(path)["values"].iloc[1].tolist() == [2, 3]


def write_half(path: Path) -> None:
    path.write_text("half")
    raise ZeroDivisionError


def test_a_file_is_replaced_when_all_is_written_and_not_before(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("former")
    with pytest.raises(ZeroDivisionError), atomic_file(target) as path:
        write_half(path)
    assert target.read_text() == "former"
    with atomic_file(target) as path:
        path.write_text("new")
        assert target.read_text() == "former"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_two_writers_of_one_file_do_not_share_what_they_write(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    with atomic_file(target) as first, atomic_file(target) as second:
        first.write_text("first")
        second.write_text("second")
        assert first.read_text() == "first"
    assert target.read_text() == "first"  # the last to end
    assert list(tmp_path.iterdir()) == [target]


def test_a_folder_half_written_is_not_there(tmp_path: Path) -> None:
    target = tmp_path / "below" / "out"
    with pytest.raises(ZeroDivisionError), atomic_folder(target) as folder:
        write_half(folder / "one")
    assert not any(target.parent.iterdir())
    with atomic_folder(target) as folder:
        (folder / "one").write_text("1")
    assert (target / "one").read_text() == "1"


@pytest.mark.parametrize("name", ["", "gone/out.txt"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        check_writable(tmp_path / name)
    with pytest.raises(OSError, match=re.escape(str(tmp_path))), atomic_file(tmp_path / name):
        pytest.fail("the body must not run")
    check_writable(tmp_path / "new.txt")
    assert not any(tmp_path.iterdir())


class Bomb:
    """What an attacker would pickle."""

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


def keep(store: ArtifactStore, key: str = "a"):
    return store.write(entry(key), Made({"estimator": {1, 2}}, {}, 1.0), {})


def plant(store: ArtifactStore, kept, value: object, signature: str):
    """Put other bytes in place of a pickle, with the right digest in the index."""
    data = encode(value).data
    part = kept.parts["estimator"]
    Path(store.files.path("cache", kept.key[:2], kept.key, part.file)).write_bytes(data)
    planted = replace(part, digest=digest(data), size_bytes=len(data), signature=signature)
    parts = {"estimator": asdict(planted)}
    change = update(artifact_table).where(artifact_table.c.key == kept.key).values(parts=parts)
    with store.database.write() as connection:  # as somebody with access to the index could
        connection.execute(change)
    return store.index.entries([kept.key])[kept.key]


@pytest.mark.parametrize("signature", ["", "0" * 64, "of another artifact", "with another key"])
def test_a_pickle_that_is_not_rightly_signed_is_never_loaded(
    store, with_key, tmp_path, caplog, signature
) -> None:
    with_key("secret")
    kept = keep(store)
    bomb = Bomb(tmp_path / "exploded")
    data = encode(bomb).data
    folder = f"cache/{kept.key[:2]}/{kept.key}"
    if signature == "of another artifact":
        signature = sign(b"secret", "cache/bb/b/estimator", data)
    elif signature == "with another key":
        signature = sign(b"guess", f"{folder}/estimator", data)
    planted = plant(store, kept, bomb, signature)
    assert store.read(planted, ["estimator"]) is None
    assert "not signed" in caplog.text
    assert not (tmp_path / "exploded").exists()


def test_bytes_that_the_index_does_not_know_are_never_loaded(store, tmp_path) -> None:
    kept = keep(store)
    part = kept.parts["estimator"]
    path = Path(store.files.path("cache", kept.key[:2], kept.key, part.file))
    path.write_bytes(encode(Bomb(tmp_path / "exploded")).data)
    assert store.read(kept, ["estimator"]) is None
    assert not (tmp_path / "exploded").exists()


def test_what_was_kept_without_a_key_is_made_again_with_one(store, with_key) -> None:
    with_key(None)
    kept = keep(store)
    assert kept.parts["estimator"].signature == ""
    with_key("secret")
    assert store.read(kept, ["estimator"]) is None
    signed = keep(store)
    assert len(signed.parts["estimator"].signature) == 64
    assert store.read(signed, ["estimator"]) == {"estimator": {1, 2}}
    matrices = put(store, "b")
    assert store.read(matrices, ["train"]) is not None  # a table runs no code


def test_a_final_model_that_is_not_signed_is_an_error_that_says_so(store, with_key) -> None:
    with_key(None)
    store.records.put("models/s", {"model": {1, 2}})
    with_key("secret")
    with pytest.raises(RecordDamaged, match="not signed"):
        store.records.get("models/s")
