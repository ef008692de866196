"""The flows read what a study is started with from its typed plan, never by a string."""

import ast
from pathlib import Path

import pytest
from source_tree import ROOT, SOURCES, parsed

DOCUMENTS = {"resolved", "settings", "former", "stored", "problem", "plan"}
"""Names under which the settings of a study travelled as dicts."""


def string_reads(node: ast.AST) -> list[str]:
    """Reads of a document by a string: `settings["seed"]`, `record.settings.get("seed")`.

    Where a value is made of its document (`from_json`, `from_stored`), strings are what they are.
    """
    found = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) and child.name.startswith("from_"):
            continue
        found += string_reads(child)
        match child:
            case ast.Subscript(value=read, slice=ast.Constant(value=str())):
                pass
            case ast.Call(
                func=ast.Attribute(value=read, attr="get" | "pop" | "setdefault"),
                args=[ast.Constant(value=str()), *_],
            ):
                pass
            case _:
                continue
        name = read.attr if isinstance(read, ast.Attribute) else getattr(read, "id", "")
        if name in DOCUMENTS:
            found.append(f"{child.lineno}: {ast.unparse(child)}")
    return found


FLOWS = [path for path in SOURCES if path.is_relative_to(ROOT / "flows")]


@pytest.mark.parametrize("path", FLOWS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_setting_is_read_by_a_string(path: Path) -> None:
    assert string_reads(parsed(path)) == []


def test_reads_by_a_string_are_found() -> None:
    """The control of the test above."""
    planted = 'a = resolved["seed"]\nb = record.settings["source"]["data"]\nc = former.get("x", 1)'
    assert len(string_reads(ast.parse(planted))) == 3
    assert string_reads(ast.parse('row["seed"]; plan.seed; row.get("seed")')) == []
    assert string_reads(ast.parse('def from_json(settings): return settings["seed"]')) == []
