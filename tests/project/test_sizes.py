"""Nothing grows past what is read at one sitting, and each public class has a name of its own."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from source_tree import ROOT, SOURCES, parsed

LINES = 60


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """Each node of some kinds in the sources, with its place."""
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, kinds):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node


def lines_of(node: ast.FunctionDef) -> int:
    """The lines of a function; flat parameters, one for each option, do not count."""
    is_flat = len(node.args.args) >= LINES // 2
    return node.end_lineno - (node.body[0] if is_flat else node).lineno + 1


def test_functions_fit_on_a_screen() -> None:
    lines = {at: lines_of(node) for at, node in nodes(ast.FunctionDef, ast.AsyncFunctionDef)}
    assert {at: n for at, n in lines.items() if n > LINES} == {}


def test_a_public_class_has_its_name_for_itself() -> None:
    places = defaultdict(list)
    for at, node in nodes(ast.ClassDef):
        if not node.name.startswith("_"):
            places[node.name].append(at)
    assert {name: at for name, at in places.items() if len(at) > 1} == {}
