"""Planted faults can be planted: their text occurs in the product, and their tests exist."""

import ast

import pytest
from project.planted_faults import all_faults


def test_each_planted_fault_has_a_unique_text_and_existing_tests() -> None:
    faults = all_faults()
    assert len({(fault.room, fault.right, fault.wrong) for fault in faults}) == len(faults)
    stale = []
    for fault in faults:
        try:
            assert fault.planted != fault.right
            assert fault.paths_of_tests
        except (ValueError, FileNotFoundError) as error:
            stale.append(str(error))
    assert stale == []


@pytest.mark.full
def test_each_planted_fault_is_valid_code() -> None:
    """A file that cannot be imported would fail every test."""
    for fault in all_faults():
        ast.parse(fault.planted, str(fault.file))
