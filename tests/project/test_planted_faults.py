"""Planted faults can be planted: their text stands in their room, and their tests exist."""

import ast

from project.planted_faults import all_faults


def test_each_fault_is_valid_code_at_one_place_and_has_tests() -> None:
    faults = all_faults()
    planted = {(fault.room, fault.right, fault.wrong) for fault in faults}
    assert len(planted) == len(faults)
    stale = []
    for fault in faults:
        try:
            ast.parse(fault.planted, str(fault.file))  # or every test would fail
            assert fault.planted != fault.right
            assert fault.test_paths
        except (ValueError, FileNotFoundError) as error:
            stale.append(str(error))
    assert stale == []
