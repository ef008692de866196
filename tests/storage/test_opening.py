"""A store is its folder and its database: opened together, or refused; nobody else looks in."""

import logging
import stat
from pathlib import Path

import pytest
from contracts.store import present, put

from prefect_tune.storage import ArtifactStore, StoreAddress, StoreRefused
from prefect_tune.storage.private_folder import make_private, make_private_file


def test_a_store_opened_twice_is_one_store(address, store) -> None:
    put(store, "a")
    other = ArtifactStore(address)
    assert other.id == store.id
    assert present(other) == {"a"}
    other.close()


@pytest.mark.usefixtures("store")
def test_a_store_with_another_index_is_refused(address, tmp_path) -> None:
    elsewhere = StoreAddress(address.url, f"sqlite:///{tmp_path}/other.sqlite")
    ArtifactStore(StoreAddress(str(tmp_path / "other"), elsewhere.database)).close()
    with pytest.raises(StoreRefused, match="do not belong together"):
        ArtifactStore(elsewhere)


@pytest.mark.usefixtures("store")
def test_a_store_whose_database_is_not_there_gets_no_empty_one(address, tmp_path) -> None:
    file = tmp_path / "mistyped.sqlite"
    with pytest.raises(StoreRefused, match=r"mistyped\.sqlite is not there"):
        ArtifactStore(StoreAddress(address.url, f"sqlite:///{file}"))
    assert not file.exists()


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


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_a_new_store_is_closed_to_other_users(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "store"
    store = ArtifactStore(StoreAddress(str(folder)))
    assert mode_of(folder) == 0o700
    store.close()


def test_a_wider_folder_is_left_as_it_is_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    folder.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        make_private(folder)
        make_private(folder)
    assert mode_of(folder) == 0o755
    (said,) = caplog.messages
    assert said == (f"other users can enter {folder} (mode 755); close it with: chmod 700 {folder}")


def test_a_closed_folder_is_not_spoken_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_private(tmp_path / "new")
    make_private(tmp_path / "new")
    assert caplog.messages == []


def test_the_index_and_what_sqlite_lays_beside_it_are_closed_to_others(tmp_path: Path) -> None:
    for address in (
        StoreAddress(str(tmp_path / "store")),
        StoreAddress(str(tmp_path / "other"), f"sqlite:///{tmp_path / 'named.sqlite'}"),
    ):
        store = ArtifactStore(address)
        store.index.totals()
        store.close()
    (tmp_path / "store").chmod(0o755)
    files = [*(tmp_path / "store").glob("index.sqlite*"), *tmp_path.glob("named.sqlite*")]
    assert len(files) >= 2
    assert {mode_of(file) for file in files} == {0o600}


@pytest.mark.parametrize(("around", "n_said"), [(0o755, 1), (0o700, 0)])
def test_a_wider_file_is_said_once_unless_nobody_gets_to_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, around: int, n_said: int
) -> None:
    file = tmp_path / "index.sqlite"
    file.touch()
    file.chmod(0o644)
    tmp_path.chmod(around)
    with caplog.at_level(logging.WARNING):
        make_private_file(file)
        make_private_file(file)
    said = f"other users can read {file} (mode 644); close it with: chmod 600 {file}"
    assert caplog.messages == [said] * n_said
    assert mode_of(file) == 0o644


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")
