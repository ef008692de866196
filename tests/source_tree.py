"""The project's own sources, for tests of its rules."""

import ast
import shutil
import subprocess
from collections.abc import Collection
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

__all__ = [
    "ROOMS", "ROOT", "SOURCES", "classes_with", "copy_tree",
    "listed_files", "module_name", "modules", "parsed",
]  # fmt: skip

ROOT = Path(__file__).parent.parent
ROOMS = ("deployments", "flows", "optimizers", "storage", "tasks")
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def listed_files() -> list[Path]:
    """Return files of the repository, relative to its top."""
    command = ["git", "ls-files"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in listed.stdout.splitlines()]


def copy_tree(folder: Path, skipped: Collection[str] = ()) -> Path:
    """Copy the files of the repository, without installed or built files, and return the copy.

    Args:
        folder: Target folder.
        skipped: Files and folders at the top that are left out.
    """
    for path in listed_files():
        if path.parts[0] not in skipped:
            (folder / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, folder / path)
    return folder


def module_name(path: Path) -> str:
    """Return the import name of a source."""
    return "prefect_tune." + ".".join(path.relative_to(ROOT).with_suffix("").parts)


def modules(folder: str) -> list[ModuleType]:
    """Return the modules of a room, or of a folder in a room."""
    paths = [p for p in (ROOT / folder).rglob("*.py") if p.name != "__init__.py"]
    return [import_module(module_name(path)) for path in paths]


def classes_with(method: str, room: str) -> set[str]:
    """Return names of the classes in a room: all classes that define `method`, if not empty."""
    return {
        node.name
        for path in SOURCES
        if path.is_relative_to(ROOT / room)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ClassDef)
        and any(method in ("", getattr(part, "name", None)) for part in node.body)
    }


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())
