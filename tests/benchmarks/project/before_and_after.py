"""Compares the behavior of this tree with that of an older revision: proposals, trials, documents.

    tests/benchmarks/run project/before_and_after                  # this tree against HEAD
    tests/benchmarks/run project/before_and_after --old main --keep /tmp/old
    tests/benchmarks/run project/before_and_after --except 'asks/admm:units=raw/*'

Both sides run on this machine in the same run. The old side runs in a git worktree with a separate
environment, removed at the end unless `--keep` names a folder; a kept folder is reused. The
comparison covers, bit for bit:

- asks: 40 proposals of every method and variant on three worlds (`observed_behavior.asks`)
- evaluations: matrices, held-out predictions, losses, and the order and cache hits of the steps of
  twelve trials from four spaces (`observed_behavior.evaluations`)
- documents: the JSON of `show`, `trials`, `report` and `compare` for three studies and a comparison
  that the old side recorded (`observed_behavior.documents`)

Intended changes are named in `--except`, by patterns of paths. Any other difference leads to exit
code 1. The run takes five minutes on two cores, and another minute to install the old side.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from inputs import events, table
from machine import describe
from observed_behavior.differences import verdict
from observed_behavior.documents import NOT_COMPARED
from source_tree import ROOT
from user_spaces import PRELUDE

SPACE = f"""{PRELUDE}
LINE, PENALTY = "sklearn.linear_model.LogisticRegression", Float("C", (1e-3, 1e3), log=True)
space = models(
    one("tree", "sklearn.tree.DecisionTreeClassifier", DEPTH, random_state=0),
    one("line", LINE, PENALTY, seeded=True),
    one("broken", LINE, PENALTY, seeded=True, solver="no such solver"),
)
"""
"""Three models; the third always fails."""
PARTS = ("asks", "evaluations", "documents")
BENCHMARKS = ROOT / "tests" / "benchmarks"
IGNORED = {"documents": NOT_COMPARED}
"""By part, keys that may differ. Other parts have no seconds, keys, versions or paths."""


@dataclass(frozen=True)
class Side:
    """The old or the new tree.

    Attributes:
        name: `old` or `new`.
        tree: Folder of the tree, with its environment.
        work: Folder for the observations.
    """

    name: str
    tree: Path
    work: Path

    def observe(self, module: str, *arguments: object) -> None:
        """Run a module of `observed_behavior` in the environment of this side.

        Raises:
            RuntimeError: If the module fails.
        """
        command = [self.tree / ".venv" / "bin" / "python", "-m", f"observed_behavior.{module}"]
        ours = ("PREFECT_", "VIRTUAL_ENV")
        done = subprocess.run(
            [str(part) for part in (*command, *arguments)],
            cwd=self.work,
            env={k: v for k, v in os.environ.items() if not k.startswith(ours)}
            | {"PYTHONPATH": str(BENCHMARKS), "PREFECT_LOGGING_LEVEL": "ERROR"}
            | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "random"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            end = f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
            raise RuntimeError(f"{module} of the {self.name} code cannot be observed:\n{end}")

    def observed(self, part: str) -> Any:
        """Return the observation of a part."""
        return json.loads((self.work / f"{part}.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", default="HEAD", help="revision to compare with")
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--keep", type=Path, help="folder of the old side, kept and used again")
    parser.add_argument("--except", action="append", default=[], dest="allowed", metavar="PATTERN")
    parser.add_argument("--most", type=int, default=10, help="differences to show of each part")
    chosen = parser.parse_args()
    print(describe(), flush=True)
    with TemporaryDirectory() as folder, old_tree(chosen.old, chosen.keep) as tree:
        sides = [Side("old", tree, Path(folder, "old")), Side("new", ROOT, Path(folder, "new"))]
        observe(sides, chosen.parts, Path(folder))
        used, n_unexpected = set[str](), 0
        for part in chosen.parts:
            old, new = (side.observed(part) for side in sides)
            found = verdict(part, old, new, allowed=chosen.allowed, ignored=IGNORED.get(part, ()))
            print(f"{part}:", "\n".join(found.lines(chosen.most)))
            used |= set(found.expected)
            n_unexpected += len(found.unexpected)
    for pattern in chosen.allowed:
        if pattern not in used:
            print(f"expected, but nothing differs there: {pattern}")
    print(describe())
    sys.exit(int(n_unexpected > 0))


def write_inputs(folder: Path) -> None:
    """Write a classification, a regression and a purely numeric table, events, and a space."""
    frame = table(240).assign(code=[f"{i % 7:03d}" for i in range(240)])
    frame.to_csv(folder / "classes.csv", index=False)
    frame[["a", "c", "count", "target"]].to_csv(folder / "whole.csv", index=False)
    numbers = frame["a"] + np.sin(3 * frame["c"])
    frame.assign(target=numbers.round(6)).to_csv(folder / "numbers.csv", index=False)
    for name, part in zip(("events", "labels"), events(), strict=True):
        part.to_csv(folder / f"{name}.csv", index=False)
    (folder / "failing.py").write_text(SPACE)


@contextmanager
def old_tree(revision: str, keep: Path | None) -> Iterator[Path]:
    """Yield a worktree of a revision with its environment, removed at the end unless kept."""
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    with TemporaryDirectory() as folder:
        tree = keep.absolute() if keep else Path(folder, "tree")
        try:
            if tree.exists():
                git("-C", str(tree), "checkout", "-q", "--detach", commit)
            else:
                git("worktree", "add", "-q", "--detach", str(tree), commit)
            subprocess.run([tree / "deployments" / "install"], check=True)
            print(f"old: {git('log', '-1', '--format=%h %s', commit)}", flush=True)
            yield tree
        finally:
            if not keep:
                git("worktree", "remove", "--force", str(tree))


def git(*arguments: str) -> str:
    """Return the output of git."""
    command = ["git", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def observe(sides: list[Side], parts: list[str], folder: Path) -> None:
    """Observe both sides, two processes at a time."""
    for side in sides:
        side.work.mkdir()
    inputs, recorded = folder / "inputs", folder / "recorded"
    inputs.mkdir()
    write_inputs(inputs)
    recorded.mkdir()
    with ThreadPoolExecutor(2) as pool:
        jobs: list[Future[None]] = []
        recording = None
        if "documents" in parts:
            recording = pool.submit(sides[0].observe, "documents", "record", inputs, recorded)
        for part, *arguments in (("asks",), ("evaluations", inputs)):
            if part in parts:
                jobs += [pool.submit(s.observe, part, *arguments, f"{part}.json") for s in sides]
        if recording:
            recording.result()
            jobs += [pool.submit(read_documents, side, recorded) for side in sides]
        for job in jobs:
            job.result()


def read_documents(side: Side, recorded: Path) -> None:
    """Observe the documents of a copy of the recorded store."""
    copytree(recorded, copy := side.work / "recorded", symlinks=True)
    side.observe("documents", "read", copy, "documents.json")


if __name__ == "__main__":
    main()
