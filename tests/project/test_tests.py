"""Tests check behavior: kinds and fields of errors, not sentences."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from source_tree import ROOT

WORDS = 3
"""Most words of a message that a test may match."""


def patterns(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the `match=` patterns of a module, and the test parameters that contain them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value
        if not isinstance(node, ast.FunctionDef):
            continue
        asked = [part.value for part in ast.walk(node) if getattr(part, "arg", "") == "match"]
        names = {n.id for part in asked for n in ast.walk(part) if isinstance(n, ast.Name)}
        for call in node.decorator_list:
            match call:
                case ast.Call(ast.Attribute(attr="parametrize"), [given, ast.List(rows), *_]):
                    of = [n.strip() for name in texts(given) for n in name.split(",")]
                    for row in rows:
                        is_param = isinstance(row, ast.Call)
                        plain = [row] if len(of) == 1 else getattr(row, "elts", [])
                        cells = row.args if is_param else plain
                        pairs = zip(of, cells, strict=False)
                        yield from (cell for name, cell in pairs if name in names)


def texts(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def wordy(source: str) -> list[str]:
    found = (text for pattern in patterns(ast.parse(source)) for text in texts(pattern))
    return [text for text in found if len(re.findall(r"[A-Za-z_]{2,}", text)) > WORDS]


PLANTED = """
@pytest.mark.parametrize(("a", "b"), [("x", "one of four words"), pytest.param("x", "five")])
def test_it(a, b):
    with pytest.raises(ValueError, match=b): pass
"""


def test_tests_do_not_match_the_wording_of_errors() -> None:
    assert wordy(PLANTED) == ["one of four words"]
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    found = {str(path.relative_to(ROOT)): wordy(path.read_text()) for path in paths}
    assert {path: sentences for path, sentences in found.items() if sentences} == {}


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["", "@pytest.mark.slow"])
def test_only_slow_tests_may_start_a_process(mark, tmp_path) -> None:
    """The rule holds even if the tested code catches the error."""
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
