"""Files and folders appear under their names when all is written, and only then."""

import pytest

from prefect_tune.deployments.commands.output import written, written_folder
from prefect_tune.tasks.bad_input import BadInput


def test_a_file_appears_when_all_is_written(tmp_path) -> None:
    target = tmp_path / "out.csv"
    with written(str(target)) as path:
        path.write_text("all")
        assert not target.exists()
    assert target.read_text() == "all"
    assert list(tmp_path.iterdir()) == [target]


def test_nothing_is_left_of_a_file_whose_writing_failed(tmp_path) -> None:
    target = tmp_path / "out.csv"
    target.write_text("before")
    with pytest.raises(ZeroDivisionError), written(str(target)) as path:
        path.write_text(str(1 / 0))
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


def test_a_place_that_cannot_be_written_is_a_mistake(tmp_path) -> None:
    for out in (tmp_path, tmp_path / "no" / "where.csv"):
        with pytest.raises(BadInput, match="cannot be written"), written(str(out)):
            pass


def test_a_folder_appears_when_all_is_written(tmp_path) -> None:
    target = tmp_path / "new" / "out"
    with written_folder(str(target)) as folder:
        (folder / "part").write_text("all")
        assert not target.exists()
    assert (target / "part").read_text() == "all"
    assert list(target.parent.iterdir()) == [target]


def test_a_folder_that_holds_something_is_a_mistake(tmp_path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(BadInput, match="already exists"), written_folder(str(tmp_path)):
        pass
