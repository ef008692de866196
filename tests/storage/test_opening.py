"""A store is its folder and its database: opened together, or refused."""

from pathlib import Path

import pytest
from contracts.store import present, put

from prefect_tune.storage import ArtifactStore, StoreAddress, StoreRefused


def test_a_store_opened_twice_is_one_store(address, store) -> None:
    put(store, "a")
    other = ArtifactStore(address)
    assert other.id == store.id
    assert present(other) == {"a"}
    other.close()


@pytest.mark.usefixtures("store")
def test_a_store_with_another_index_is_refused(address, tmp_path) -> None:
    elsewhere = StoreAddress(address.url, f"sqlite:///{tmp_path}/other.sqlite")
    with pytest.raises(StoreRefused, match="do not belong together"):
        ArtifactStore(elsewhere)


@pytest.mark.usefixtures("store")
def test_an_index_with_another_store_is_refused(address, tmp_path) -> None:
    database = f"sqlite:///{address.url}/index.sqlite"
    with pytest.raises(StoreRefused, match=f"index of the store at {address.url}"):
        ArtifactStore(StoreAddress(str(tmp_path / "second"), database))


@pytest.mark.usefixtures("store")
def test_a_store_of_a_newer_format_is_refused(address) -> None:
    path = Path(address.url, "store.json")
    path.write_text(path.read_text().replace('"format":1', '"format":99'))
    with pytest.raises(StoreRefused, match=r"format 99.*use a newer version"):
        ArtifactStore(address)


def test_a_store_in_a_file_is_refused(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match="cannot be written"):
        ArtifactStore(StoreAddress(str(tmp_path / "file" / "store")))


def test_a_remote_store_without_a_database_is_refused() -> None:
    with pytest.raises(StoreRefused, match="name a PostgreSQL one with --database"):
        ArtifactStore(StoreAddress("s3://bucket/store"))
