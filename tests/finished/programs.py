"""Running a written program as its reader would, in this process or in one without prefect-tune."""

import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

WITHOUT = """
import importlib.abc, runpy, sys


class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "prefect_tune":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Blocked())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that runs another one as if prefect-tune were not installed."""


def fold_losses(text: str, folder: Path, data: Path | None = None) -> list[float]:
    """The losses that a program comes to, in this process, to the last digit."""
    file = folder / "again.py"
    file.write_text(text, encoding="utf-8")
    argv, sys.argv = sys.argv, [str(file), *([] if data is None else [str(data)])]
    try:
        program = runpy.run_path(str(file))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _losses(program)
    finally:
        sys.argv = argv


def _losses(program: dict[str, Any]) -> list[float]:
    """What `main` computes, without rounding."""
    found: list[float] = []
    main, loss = program["main"], program["loss"]

    def noted(*given: Any) -> float:
        found.append(float(loss(*given)))
        return found[-1]

    main.__globals__["loss"] = noted
    main()
    return found


def run_without_prefect_tune(script: Path, *arguments: object) -> str:
    """The output of a script in a process that cannot import prefect-tune."""
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT, str(script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
