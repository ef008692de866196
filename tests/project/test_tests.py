"""Tests look at behaviour: at the kind of an error and the values in it, not at its sentences."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from source_tree import ROOT

WORDS = 3
"""So many words of a message may be asked for: an option, a value, and what it is of."""


def patterns(path: Path) -> Iterator[tuple[str, str]]:
    """Each text that a test asks for by `match=`, with its place."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "match":
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield f"{path.relative_to(ROOT)}:{node.value.lineno}", part.value


def test_no_error_is_recognised_by_its_sentence() -> None:
    wordy = {
        place: text
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for place, text in patterns(path)
        if len(re.findall(r"[A-Za-z]{2,}", text)) > WORDS
    }
    assert wordy == {}
