"""Outputs of commands, which replace no input."""

from pathlib import Path

import pytest

from prefect_tune.flows.starting.output_files import check_output
from prefect_tune.tasks.bad_input import BadInput


@pytest.mark.parametrize("form", ["symlink_to", "hardlink_to"])
def test_a_file_that_a_folder_of_data_links_to_is_not_replaced(tmp_path: Path, form: str) -> None:
    file, folder = tmp_path / "events.parquet", tmp_path / "data"
    file.write_text("events")
    folder.mkdir()
    getattr(folder / "0.parquet", form)(file)
    with pytest.raises(BadInput, match="name another file"):
        check_output(str(file), [str(folder)])
    other = tmp_path / "other.parquet"
    assert check_output(str(other), [str(folder)]) == other
