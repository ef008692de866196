"""Tests look at behaviour: at the kind of an error and the values in it, not at its sentences."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import ROOT

WORDS = 3
"""So many words of a message may be asked for: an option, a value, and what it is of."""
WORDS_OF_TEXT = 6
"""So many of what is shown may be compared, besides figures and names."""


def texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.lineno, part.value


def patterns(path: Path) -> Iterator[tuple[str, str]]:
    """Each text that a test asks for by `match=`, with its place."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "match":
            for line, text in texts(node.value):
                yield f"{path.relative_to(ROOT)}:{line}", text


def compared(path: Path) -> Iterator[tuple[str, str]]:
    """Each text that a test compares with what it sees, with its place."""
    for claim in ast.walk(ast.parse(path.read_text())):
        if isinstance(claim, ast.Assert):
            for node in ast.walk(claim.test):
                if isinstance(node, ast.Compare):
                    for line, text in texts(node):
                        yield f"{path.relative_to(ROOT)}:{line}", text


def test_no_error_is_recognised_by_its_sentence() -> None:
    wordy = {
        place: text
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for place, text in patterns(path)
        if len(re.findall(r"[A-Za-z]{2,}", text)) > WORDS
    }
    assert wordy == {}


def test_no_output_is_compared_by_its_sentences() -> None:
    wordy = {
        place: text
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for place, text in compared(path)
        if sum(bool(re.fullmatch(r"[A-Za-z]{2,}[.,:;]?", word)) for word in text.split())
        > WORDS_OF_TEXT
    }
    assert wordy == {}


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
