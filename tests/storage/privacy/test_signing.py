"""Who can write to a store must not thereby run code on the workers."""

import logging
import pickle
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from contracts.store import entry, put
from sqlalchemy import update

from prefect_tune.storage import ArtifactStore, Made, RecordDamaged
from prefect_tune.storage.codec import encode
from prefect_tune.storage.key import digest
from prefect_tune.storage.privacy.signing import KEY_VARIABLE, sign, signing_key
from prefect_tune.storage.schema import artifact_table


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


def enter(store: ArtifactStore, kept, part) -> None:
    """Change the index as somebody with access to it could."""
    parts = {"estimator": asdict(part)}
    with store.database.write() as connection:
        connection.execute(
            update(artifact_table).where(artifact_table.c.key == kept.key).values(parts=parts)
        )


def plant(store: ArtifactStore, kept, value: object, signature: str):
    """Put other bytes in place of a pickle, with the right digest in the index."""
    data = encode(value).data
    part = kept.parts["estimator"]
    Path(store.files.path("cache", kept.key[:2], kept.key, part.file)).write_bytes(data)
    planted = replace(part, digest=digest(data), size_bytes=len(data), signature=signature)
    enter(store, kept, planted)
    return store.index.entries([kept.key])[kept.key]


def test_with_a_key_what_is_signed_is_read(store, with_key) -> None:
    with_key("secret")
    kept = keep(store)
    assert len(kept.parts["estimator"].signature) == 64
    assert store.read(kept, ["estimator"]) == {"estimator": {1, 2}}


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
    with caplog.at_level(logging.WARNING):
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
    matrices = put(store, "b")
    assert store.read(matrices, ["train"]) is not None  # a table runs no code


def test_a_final_model_that_is_not_signed_is_an_error_that_says_so(store, with_key) -> None:
    with_key(None)
    store.records.put("models/s", {"model": {1, 2}})
    with_key("secret")
    with pytest.raises(RecordDamaged, match="is not signed, and is not loaded"):
        store.records.get("models/s")


def test_a_bomb_is_a_bomb(tmp_path) -> None:
    pickle.loads(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert (tmp_path / "exploded").exists()
