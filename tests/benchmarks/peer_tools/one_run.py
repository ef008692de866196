"""One run of one tool, in this process: `python -m peer_tools.one_run FOLDER TOOL [CORE]`.

FOLDER has `task.json`, and gets `answers.json`. A tool is a module of `adapters`, or with a dot in
its name any other one.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

from peer_tools.task import Answer, Task

__all__ = ["adapter", "outcome"]


def adapter(tool: str) -> ModuleType:
    """The module of a tool.

    Raises:
        ModuleNotFoundError: If there is none.
    """
    return import_module(tool if "." in tool else f"peer_tools.adapters.{tool}")


def outcome(tool: str, task: Task) -> list[dict[str, Any]]:
    """Ask a tool, and score its answers."""
    module = adapter(tool)
    answers = list(_timed(module.answers(task), task))
    # Imported last: what a tool needs itself is in its seconds, and nothing else.
    from peer_tools.scoring import test_loss

    truth = task.frames()[1][task.target]
    return [
        {
            "stage": answer.stage,
            "model": answer.model,
            "found": answer.found,
            "loss": answer.loss,
            "test_loss": test_loss(task.kind, truth, answer.predictions),
            "configurations": answer.configurations,
            "handed_over": seconds,
            "is_anytime": getattr(module, "ANYTIME", True),
            "version": answer.version or _version(getattr(module, "DISTRIBUTION", "")),
        }
        for answer, seconds in answers
    ]


def _timed(answers: Iterator[Answer], task: Task) -> Iterator[tuple[Answer, float]]:
    for answer in answers:
        yield answer, task.elapsed()


def _version(distribution: str) -> str:
    try:
        return version(distribution) if distribution else ""
    except PackageNotFoundError:
        return ""


def main() -> None:
    folder, tool, *core = sys.argv[1:]
    if core:
        os.sched_setaffinity(0, {int(core[0])})
    rows = outcome(tool, Task.read(Path(folder, "task.json")))
    Path(folder, "answers.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
