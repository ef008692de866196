"""The project's own sources, for tests of its rules."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

__all__ = ["ROOMS", "ROOT", "SOURCES", "listed_files", "module_name", "parsed", "with_docstrings"]

ROOT = Path(__file__).parent.parent
ROOMS = ("deployments", "flows", "optimizers", "storage", "tasks")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def listed_files() -> list[Path]:
    """Files of the repository, relative to its top."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in listed.stdout.splitlines()]


def module_name(path: Path) -> str:
    """The name that a source is imported by."""
    return "prefect_tune." + ".".join(path.relative_to(ROOT).with_suffix("").parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def with_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Each docstring of a source, with the place where it stands."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(parsed(path)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}", text
