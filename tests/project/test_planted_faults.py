"""Planted faults can be planted: their text stands in their room, and their tests exist."""

import ast
import tomllib

import pytest
from project.planted_faults import Fault, all_faults, recorded

FAULTS = all_faults()
ROOM = {"room": "optimizers", "group": "g", "reason": "r", "tests": ("test_trials.py",)}


def test_each_fault_has_a_text_that_its_room_has_once_and_tests_that_exist() -> None:
    stale = []
    for fault in FAULTS:
        try:
            assert fault.planted != fault.right
            assert fault.test_paths
        except (ValueError, FileNotFoundError) as error:
            stale.append(str(error))
    assert stale == []


def test_each_fault_is_valid_code() -> None:
    """A file that cannot be imported fails every test, whether it looks at the fault or not."""
    for fault in FAULTS:
        ast.parse(fault.planted, str(fault.file))


def test_no_fault_is_planted_twice() -> None:
    planted = [(fault.room, fault.right, fault.wrong) for fault in FAULTS]
    assert len(set(planted)) == len(planted)


def test_a_text_that_a_room_has_not_or_twice_is_refused() -> None:
    for right in ("no such text", "def __post_init__(self) -> None:"):
        with pytest.raises(ValueError, match=r"optimizers\.toml"):
            _ = Fault(**ROOM, right=right, wrong="").file


def test_tests_that_do_not_exist_are_refused() -> None:
    fault = Fault(**{**ROOM, "tests": ("test_no_such.py",)}, right="", wrong="")
    with pytest.raises(FileNotFoundError, match=r"optimizers\.toml"):
        _ = fault.test_paths


def test_the_test_that_notices_a_fault_is_written_next_to_it_and_read_back() -> None:
    table = (
        '["named"]\nfaults = [\n    ["r", "if \\"a\\" > 0:", "if 1:"],\n'
        '    ["s", "b", "c", "x"],\n]\n'
    )
    fault = Fault(**ROOM, right='if "a" > 0:', wrong="if 1:")
    for name in ("test_trials.py::test_one", "test_trials.py::test_two[a, b]"):
        table = recorded(table, fault, name)
        rows = tomllib.loads(table)["named"]["faults"]
        assert rows == [["r", fault.right, fault.wrong, name], ["s", "b", "c", "x"]]
    with pytest.raises(ValueError, match=r"optimizers\.toml"):
        recorded(table, Fault(**ROOM, right="no such", wrong=""), name)
