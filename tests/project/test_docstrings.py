"""Examples in docstrings hold, and the docstring of a folder names its modules."""

import ast
import doctest
import importlib
import re

import pytest
from source_tree import ROOT, SOURCES, module_name, parsed

MAPS = [p for p in SOURCES if p.name == "__init__.py" and p.parent != ROOT / "deployments/package"]


def test_examples_in_docstrings_hold() -> None:
    examples = [path for path in SOURCES if ">>> " in path.read_text()]
    assert examples
    for path in examples:
        result = doctest.testmod(importlib.import_module(module_name(path)))
        assert (result.failed, result.attempted > 0) == (0, True), path


@pytest.mark.parametrize("path", MAPS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_docstring_of_a_folder_names_all_modules_and_subfolders(path) -> None:
    files = {p.stem for p in path.parent.glob("*.py") if not p.stem.startswith("__")}
    folders = {p.parent.name for p in path.parent.glob("*/__init__.py")}
    named = set(re.findall(r"`(\w+)`", ast.get_docstring(parsed(path)) or ""))
    assert files | folders <= named
