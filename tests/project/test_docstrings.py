"""Examples in docstrings hold, rooms are mapped, and summaries name the thing or what it does."""

import ast
import doctest
import importlib
import re

import pytest
from source_tree import ROOT, SOURCES, module_name, parsed, with_docstrings

MODULES = [module_name(p) for p in SOURCES if p.name not in ("__init__.py", "__main__.py")]
MAPS = [p for p in SOURCES if p.name == "__init__.py" and p.parent != ROOT / "deployments/package"]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_hold(module) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_modules_were_found() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize("path", MAPS, ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_a_room_is_mapped_by_its_docstring(path) -> None:
    files = {p.stem for p in path.parent.glob("*.py") if not p.stem.startswith("__")}
    rooms = {p.parent.name for p in path.parent.glob("*/__init__.py")}
    named = set(re.findall(r"`(\w+)`", ast.get_docstring(parsed(path)) or ""))
    assert files | rooms <= named
    there = {p.stem for p in path.parent.iterdir()}
    assert named - there <= names_in(path.parent)


def names_in(folder) -> set[str]:
    """Names that the code of a folder uses: a map has no others, as of modules that were merged."""
    nodes = [node for path in folder.glob("*.py") for node in ast.walk(parsed(path))]
    parts = ("name", "id", "attr")
    return {
        name for node in nodes for part in parts if isinstance(name := getattr(node, part, 0), str)
    }


def test_no_summary_opens_with_what() -> None:
    found = [at for path in SOURCES for at, text in with_docstrings(path) if text[:5] == "What "]
    assert found == []
