"""Nothing grows past what is read at one sitting: folders, functions, classes."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

from source_tree import ROOT, SOURCES, listed_files, parsed

FILES, LINES, METHODS = 20, 60, 15
REASON = re.compile(r"^Many methods: \S.{20}", re.MULTILINE)
"""How the docstring of a class says why it has more."""

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Each node of some kinds in the sources, with its place."""
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, kinds):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def test_no_folder_shows_more_than_twenty_files() -> None:
    counted = Counter(p.parent for p in listed_files() if p.name != "py.typed")
    assert {str(folder): n for folder, n in counted.items() if n > FILES} == {}


def test_functions_fit_on_a_screen() -> None:
    lines = {
        at: node.end_lineno - node.lineno + 1
        for at, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)
    }
    assert {at: n for at, n in lines.items() if n > LINES} == {}


def test_a_class_with_many_methods_and_no_other_says_why() -> None:
    found = {}
    for at, node in nodes(ast.ClassDef):
        n_methods = sum(isinstance(member, FunctionNode) for member in node.body)
        gives_reason = REASON.search(ast.get_docstring(node) or "") is not None
        if (n_methods > METHODS) != gives_reason:
            found[at] = n_methods
    assert found == {}
