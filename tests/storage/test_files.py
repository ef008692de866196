"""Folders of parts: published as a whole or not at all, and never read unless they are whole."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from prefect_tune.storage import StoreRefused
from prefect_tune.storage.files import Damaged, Files, new_place, place_of
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.privacy.signing import KEY_VARIABLE, signing_key

PARTS = {"train": canonical(np.arange(12.0).reshape(6, 2)), "estimator": {1, 2}}
FOLDER = "cache/aa/key"


@pytest.fixture(params=["local", "memory"])
def files(request, tmp_path) -> Files:
    if request.param == "local":
        (tmp_path / "records").mkdir()
        return Files(str(tmp_path))
    return Files(f"memory://{tmp_path}")


@pytest.fixture
def local(tmp_path) -> Files:
    (tmp_path / "records").mkdir()
    return Files(str(tmp_path))


@pytest.fixture
def forgotten_key() -> Iterator[None]:
    """A process remembers its signing key; the next test must not."""
    yield
    signing_key.cache_clear()


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
        with pytest.raises(Damaged, match="its digest differs") as caught:
            files.read(FOLDER, name, parts[name])
        assert not caught.value.is_missing


@pytest.mark.usefixtures("forgotten_key")
def test_a_pickle_is_read_where_it_was_signed_for(files, monkeypatch) -> None:
    unsigned, _ = publish(files)
    monkeypatch.setenv(KEY_VARIABLE, "secret")
    signing_key.cache_clear()
    with pytest.raises(Damaged, match="is not signed, and is not loaded"):
        files.read(FOLDER, "estimator", unsigned["estimator"])
    assert files.read(FOLDER, "train", unsigned["train"])  # no code runs when it is read
    signed, encoded = publish(files)
    assert files.read(FOLDER, "estimator", signed["estimator"])
    moved = files.publish("cache/bb/other", place_of(signed), encoded)
    with pytest.raises(Damaged, match="not signed with the signing key"):
        files.read("cache/bb/other", "estimator", moved["estimator"])


def test_a_writer_that_fails_leaves_nothing(local, monkeypatch) -> None:
    def broken_off(*_) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "rename", broken_off)
    with pytest.raises(OSError, match="no space left"):
        publish(local)
    assert not list(Path(local.path("tmp")).iterdir())
    assert not list(Path(local.path(FOLDER)).iterdir())


def test_records_are_not_written_where_their_area_is_gone(local) -> None:
    publish(local, "records/models/s")
    Path(local.path("records")).rename(local.path("elsewhere"))
    with pytest.raises(FileNotFoundError, match="records is gone"):
        publish(local, "records/models/t")
    assert publish(local)  # the cache's is made again


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
    with pytest.raises(StoreRefused, match="the store gopher://hole cannot be opened"):
        Files("gopher://hole")
