"""One run of one tool, in this process: `python -m peer_tools.one_run FOLDER TOOL [CORE]`.

FOLDER contains `task.json`; the answers are written to `answers.json` there. A tool is a module of
`adapters`.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from peer_tools.task import Answer, Task

__all__ = ["adapter", "outcome"]


def adapter(tool: str) -> ModuleType:
    """Return the module of a tool."""
    return import_module(f"peer_tools.adapters.{tool}")


def outcome(tool: str, task: Task) -> list[dict[str, Any]]:
    """Run a tool, and score its answers."""
    module = adapter(tool)
    answers = list(_timed(module.answers(task), task))
    truth = task.frames()[1][task.target]
    return [
        {
            "stage": answer.stage,
            "model": answer.model,
            "found": answer.found,
            "loss": answer.loss,
            "test_loss": _test_loss(task.kind, truth, answer.predictions),
            "configurations": answer.configurations,
            "handed_over": seconds,
            "is_anytime": getattr(module, "ANYTIME", True),
            "version": answer.version or version(module.DISTRIBUTION),
        }
        for answer, seconds in answers
    ]


def _timed(answers: Iterator[Answer], task: Task) -> Iterator[tuple[Answer, float]]:
    for answer in answers:
        yield answer, task.elapsed()


def _test_loss(kind: str, truth: Any, predictions: Any) -> float:
    """Return the error in percent, or 1 - R2; inf for predictions that are not finite."""
    import numpy as np  # last: only imports of the tool itself are in its seconds

    truth, predictions = np.asarray(truth), np.asarray(predictions).ravel()
    if kind == "classes":
        return float(100 * np.mean(truth.astype(str) != predictions.astype(str)))
    y, predicted = truth.astype(np.float64), predictions.astype(np.float64)
    if not np.isfinite(predicted).all():
        return float("inf")
    return float(np.sum((y - predicted) ** 2) / np.sum((y - y.mean()) ** 2))


def main() -> None:
    folder, tool, *core = sys.argv[1:]
    if core:
        os.sched_setaffinity(0, {int(core[0])})
    rows = outcome(tool, Task.read(Path(folder, "task.json")))
    Path(folder, "answers.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
