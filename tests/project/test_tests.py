"""Tests look at behaviour: at the kind of an error and the values in it, not at its sentences."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from source_tree import ROOT

WORDS = 3
"""So many words of a message may be asked for: an option, a value, and what it is of."""
WORDS_OF_TEXT = 6
"""So many of what is shown may be compared, besides figures and names."""


ENDS = ("startswith", "endswith")
Texts = Iterator[tuple[int, str]]


def texts(node: ast.AST) -> Texts:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.lineno, part.value


def patterns(tree: ast.AST) -> Texts:
    """Each text that a test asks for by `match=`, those of its parameters too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "match":
            yield from texts(node.value)
        if isinstance(node, ast.FunctionDef):
            asked = [part for part in ast.walk(node) if getattr(part, "arg", "") == "match"]
            names = {n.id for part in asked for n in ast.walk(part) if isinstance(n, ast.Name)}
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(".parametrize"):
                    yield from parameters(*call.args[:2], names)


def parameters(given: ast.expr, rows: ast.expr, names: set[str]) -> Texts:
    """Each text that `parametrize` gives to some parameters."""
    of = [name.strip() for _, text in texts(given) for name in text.split(",")]
    for row in getattr(rows, "elts", ()):
        cells = [row] if len(of) == 1 else getattr(row, "elts", getattr(row, "args", ()))
        for name, cell in zip(of, cells, strict=False):
            if name in names:
                yield from texts(cell)


def compared(tree: ast.AST) -> Texts:
    """Each text that a test compares with what it sees."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            yield from texts(node.test)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ENDS:
            yield from (found for argument in node.args for found in texts(argument))


def wordy(kind: Callable[[ast.AST], Texts], word: str, most: int) -> dict[str, str]:
    """Texts of more words, each with its place."""
    return {
        f"{path.relative_to(ROOT)}:{line}": text
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for line, text in kind(ast.parse(path.read_text()))
        if len(re.findall(word, text)) > most
    }


def test_no_error_is_recognised_by_its_sentence() -> None:
    assert wordy(patterns, r"[A-Za-z_]{2,}", WORDS) == {}


def test_no_output_is_compared_by_its_sentences() -> None:
    assert wordy(compared, r"(?<!\S)[A-Za-z]{2,}[.,:;]?(?!\S)", WORDS_OF_TEXT) == {}


PLANTED = """
@pytest.mark.parametrize(("a", "b"), [("x", "one of four words"), pytest.param("x", "five")])
def test_it(a, b):
    with pytest.raises(ValueError, match=b): pass
    expected = text.startswith("a start"), other.split("none")
    assert a in "seen", "not seen"
"""


def test_texts_are_found_wherever_a_test_may_have_them() -> None:
    tree = ast.parse(PLANTED)
    assert [text for _, text in patterns(tree)] == ["one of four words", "five"]
    assert sorted(text for _, text in compared(tree)) == ["a start", "seen"]


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["", "@pytest.mark.slow"])
def test_only_a_test_that_is_not_quick_may_start_a_process(mark, tmp_path) -> None:
    """Even if the code that it tests catches the error."""
    (tmp_path / "test_planted.py").write_text(
        f"import contextlib, subprocess, pytest\n{mark}\ndef test_it():\n"
        "    with contextlib.suppress(Exception): subprocess.run('true')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "test_planted.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests")},
        capture_output=True,
        check=False,
    )
    assert done.returncode == (0 if mark else 1)
