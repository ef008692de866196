"""Files and folders that users name appear whole or not at all."""

import re
from pathlib import Path

import pytest

from prefect_tune.storage.atomic import atomic_file, atomic_folder, check_writable


def write_half(path: Path) -> None:
    path.write_text("half")
    raise ZeroDivisionError


def test_a_file_is_replaced_when_all_is_written(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("former")
    with atomic_file(target) as path:
        path.write_text("new")
        assert target.read_text() == "former"
    assert target.read_text() == "new"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_half_written_leaves_the_former_one(tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    target.write_text("former")
    with pytest.raises(ZeroDivisionError), atomic_file(target) as path:
        write_half(path)
    assert target.read_text() == "former"
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
