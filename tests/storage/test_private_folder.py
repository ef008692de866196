import logging
import stat
from pathlib import Path

import pytest

from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.private_folder import make_private


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


def test_a_file_in_its_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_private(tmp_path / "file")
