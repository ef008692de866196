from pathlib import Path

import pytest

from prefect_tune.flows.store_location import store_address
from prefect_tune.storage import StoreAddress
from prefect_tune.tasks.bad_input import BadInput


def test_the_default_store_is_below_the_home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path))
    assert store_address(None, None) == StoreAddress(str(tmp_path / "store"))


def test_a_folder_is_made_absolute_since_workers_have_other_working_folders(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert store_address("mine", None).url == str(Path.cwd() / "mine")
    assert store_address("~/mine", None).url == str(tmp_path / "mine")


def test_a_url_stays_as_it_is() -> None:
    assert store_address("s3://bucket/store", "postgresql://db") == StoreAddress(
        "s3://bucket/store", "postgresql://db"
    )


@pytest.mark.usefixtures("server")
def test_an_unknown_block_is_a_mistake() -> None:
    with pytest.raises(BadInput, match="--store block:nowhere"):
        store_address("block:nowhere", None)
