"""Seconds of `show`, `trials`, `report`, `study ls` and `--help`, in turn with another version.

    tests/benchmarks/run deployments/looking [OTHER]

Enters finished studies of 20 and of 10,000 trials, each trial with three folds of each step, and
times commands in processes of their own, from a warm disk. OTHER is the tree of another version,
with its environment: it fills a store of its own with this benchmark.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from subprocess import run
from time import time

import numpy as np
from flow_studies import plan_of
from machine import Goals, describe, seconds_of
from source_tree import ROOT
from sqlalchemy import insert

from prefect_tune.optimizers import Asked, Budget, Evaluation, Query, StepCost, Told, Trial
from prefect_tune.optimizers.events import event_document
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.schema import artifact_table
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.problem import Problem, StudyContext

SPACE = space_named("flash")
COMMANDS = (("show", "s"), ("trials", "s"), ("report", "s", "--json"), ("study", "ls"), ("--help",))
SIZES = (20, 10_000)
REPEATS = 10
MOST_TIMES = {"report": 1.2}
MOST_TIMES_OTHERS = 1.05
"""By which a command may take longer than that of the other version: noise of two medians."""


def trials(n: int) -> Iterator[Trial]:
    rng = np.random.default_rng(0)
    for number in range(n):
        query = Query(sample_configuration(SPACE, rng))
        steps = tuple(
            StepCost(step.name, fold, 0.1, 0.01, hit=fold > 0, key=rng.bytes(32).hex())
            for step in SPACE.steps
            for fold in range(3)
        )
        loss = float(rng.random())
        yield Trial(number, query).started().completed(Evaluation(loss, (loss,) * 3, 1, 2, steps))


def artifact(step: StepCost) -> dict[str, object]:
    """A row of the index: what a step of the study made."""
    return {
        "key": step.key, "parent": None, "study": "s", "step": step.step, "algorithm": "any",
        "fold": step.fold, "is_present": True, "size_bytes": 1000, "cost_seconds": 1.0,
        "created": time(), "last_used": time(), "hits": 0, "summary": {"rows": 100}, "parts": {},
        "place": "p", "is_costly": True,
    }  # fmt: skip


def fill(folder: Path, n: int) -> None:
    """Enter a finished study of `n` trials."""
    store = ArtifactStore(StoreAddress(str(folder)))
    problem = Problem("data", "split", SPACE.name, SPACE.digest, "error", seed=0)
    plan = plan_of(StudyContext("s", problem, store.address), method="flash", chance_loss=50.0)
    ledger = Ledger(store.database)
    ledger.create_study("s", problem.to_json(), plan.to_json())
    artifacts, best = [], None
    for trial in trials(n):
        best = trial if best is None or trial.loss < best.loss else best
        asked = {**event_document(Asked(trial.number, trial.query, Budget())), "seconds": 0.1}
        told = {**trial.to_json(), "elapsed_seconds": float(trial.number), "incumbent": best.number}
        ledger.append("s", Asked.kind, asked, Trial(trial.number, trial.query).to_json())
        ledger.append("s", Told.kind, told, trial.to_json())
        artifacts += [artifact(step) for step in trial.evaluation.steps]
    ledger.update_study(
        "s", state="complete", result={"best_trial": best.number, "nearest_trial": None}
    )
    with store.database.write() as connection:
        connection.execute(insert(artifact_table), artifacts)
    store.close()


def filled(tree: Path, folder: Path, n: int) -> tuple[tuple[str, ...], Path]:
    """The command of a tree, and a store that it has filled with a study of `n` trials."""
    code = "import sys; from pathlib import Path; from deployments.looking import fill; "
    code += "fill(Path(sys.argv[1]), int(sys.argv[2]))"
    tests = tree / "tests"
    paths = os.pathsep.join(map(str, (tests, tests / "benchmarks")))
    python = tree / ".venv" / "bin" / "python"
    environment = {**os.environ, "PYTHONPATH": paths}
    run([python, "-c", code, folder, str(n)], check=True, env=environment, cwd=folder.parent)
    return (str(python), "-m", "prefect_tune.deployments"), folder


def main() -> None:
    goals = Goals()
    print(describe())
    for size in SIZES:
        with tempfile.TemporaryDirectory() as temporary:
            trees = {"this one": ROOT}
            if len(sys.argv) > 1:
                trees["other"] = Path(sys.argv[1]).absolute()
            contenders = {
                name: filled(tree, Path(temporary, name.replace(" ", "-")), size)
                for name, tree in trees.items()
            }
            for command in COMMANDS:
                taken: dict[str, list[float]] = {name: [] for name in contenders}
                for _ in range(REPEATS):
                    for name, (contender, store) in contenders.items():
                        store_words = () if command == ("--help",) else ("--store", str(store))
                        words = [*contender, *command, *store_words]
                        taken[name].append(seconds_of(run, words, check=True, capture_output=True))
                medians = {name: median(values) for name, values in taken.items()}
                what = f"{' '.join(command)}, {size:,} trials"
                print(what, {name: round(value, 2) for name, value in medians.items()})
                if "other" in medians:
                    most = MOST_TIMES.get(command[0], MOST_TIMES_OTHERS)
                    goals.at_most(what, medians["this one"] / medians["other"], most)
    print(describe())
    goals.end()


if __name__ == "__main__":
    main()
