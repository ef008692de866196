"""Examples in docstrings hold."""

import doctest
import importlib

import pytest
from source_tree import SOURCES, module_name

MODULES = [module_name(p) for p in SOURCES if p.name not in ("__init__.py", "__main__.py")]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_hold(module) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def test_modules_were_found() -> None:
    assert len(MODULES) > 50
