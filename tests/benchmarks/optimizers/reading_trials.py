"""Reading the trials of a long study, and writing them, beside an older revision of the code.

    tests/benchmarks/run optimizers/reading_trials [--trials 100000] [--old HEAD] [--repeats 5]

Both revisions run in processes of this environment and take turns; the least time counts. `resumed`
makes a `Trial` of each document, checked against its space; `shown` checks a document as `show`
does; `written` makes the document of a trial. Each trial has twelve steps in each of three folds.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from time import perf_counter

import numpy as np
import orjson
from machine import Goals, describe
from source_tree import ROOMS, ROOT
from worlds import mixed_space

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.optimizers import Evaluation, Query, StepCost, Trial
from prefect_tune.optimizers.space.sampling import sample_configuration

WAYS = ("resumed", "shown", "written")
DIFFERENT, STEPS, FOLDS = 1_000, 12, 3
NOISE = 1.05
"""Largest ratio of new to old seconds that counts as no slower."""


def documents() -> list[bytes]:
    """The documents of different trials as the ledger keeps them."""
    rng = np.random.default_rng(0)
    space = mixed_space()
    steps = tuple(
        StepCost(f"step {step}", fold, 1.0 / (step + 1), 0.25, hit=True, key=f"{step}{fold}" * 32)
        for step in range(STEPS)
        for fold in range(FOLDS)
    )
    outcome = Evaluation(0.5, (0.25, 0.5, 0.75), 12.0, 36.0, steps, predictions=("a", "b", "c"))
    trials = (
        Trial(number, Query(sample_configuration(space, rng)))
        .started()
        .completed(replace(outcome, loss=float(rng.random())))
        for number in range(DIFFERENT)
    )
    return [orjson.dumps(trial.to_json()) for trial in trials]


def seconds(way: str, n_trials: int) -> float:
    """Seconds of a way for so many trials."""
    space, texts = mixed_space(), documents()
    read = [orjson.loads(text) for text in texts]
    trials = [Trial.from_json(document, space) for document in read]
    acts = {
        "resumed": lambda i: Trial.from_json(read[i], space),
        "shown": lambda i: TrialView(read[i]).checked(),
        "written": lambda i: trials[i].to_json(),
    }
    act, started = acts[way], perf_counter()
    for number in range(n_trials):
        act(number % DIFFERENT)
    return perf_counter() - started


def checked_out(revision: str, folder: Path) -> Path:
    """The package as it was at a revision, in a folder for the path of imports."""
    archive = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, capture_output=True, check=True
    )
    source, package = folder / "source", folder / "path" / "prefect_tune"
    source.mkdir()
    package.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    for room in ROOMS:
        (package / room).symlink_to(source / room)
    for part in (source / "deployments" / "package").iterdir():
        (package / part.name).symlink_to(part)
    return package.parent


def measured(way: str, n_trials: int, path: Path | None) -> float:
    """Seconds in a process of its own, with the package of another path or this one."""
    paths = [str(path)] if path else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*paths, *sys.path[1:3]])}
    command = [sys.executable, __file__, "--trials", str(n_trials), "--only", way]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return float(done.stdout)


def rounds(given: argparse.Namespace, way: str, path: Path) -> Iterator[tuple[float, float]]:
    """Old and new seconds of a way, again and again; they take turns at the first place."""
    is_old_first = True
    while True:
        sides = (path, None) if is_old_first else (None, path)
        took = {side: measured(way, given.trials, side) for side in sides}
        yield took[path], took[None]
        is_old_first = not is_old_first


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--old", default="HEAD", help="a revision of this repository")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=WAYS, help="print the seconds of this code alone")
    given = parser.parse_args()
    if given.only:
        print(seconds(given.only, given.trials))
        return
    goals = Goals()
    print(describe())
    with tempfile.TemporaryDirectory() as folder:
        path = checked_out(given.old, Path(folder))
        for way in WAYS:
            took = np.array(list(islice(rounds(given, way, path), given.repeats)))
            old, new = took.min(axis=0)
            per_round = ", ".join(f"{ratio:.2f}" for ratio in took[:, 1] / took[:, 0])
            print(f"{way}: {old:.2f} s before, {new:.2f} s after; by round {per_round}")
            goals.at_most(f"{way}, after / before", new / old, NOISE)
    goals.end()


if __name__ == "__main__":
    main()
