"""Each public class has a name of its own."""

import ast
from collections import defaultdict

from source_tree import ROOT, SOURCES, parsed


def test_a_public_class_has_its_name_for_itself() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}
