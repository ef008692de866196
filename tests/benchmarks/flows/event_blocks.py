"""What the cache is worth to the construction of features from patient events.

    tests/benchmarks/run flows/event_blocks --home FOLDER [--data DATA] [--trials 100]

A default study of so many configurations. Then the construction of each of its trials runs once
more, with no cache and nothing else, as many at a time as in the study. Goals: the cache serves
60 % of the seconds of construction, matrices and blocks of events together, and the construction is
at least 0.9 times as much quicker as this share allows.
"""

import argparse
import json
import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from machine import Goals, describe
from processes import COMMAND, environment

from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.optimizers import Query
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.trial.path_run import PathRun
from prefect_tune.tasks.trial.shared_blocks import STEP

STUDY = "blocks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--data", default="cohort:paper?n_patients=20000&family=average&seed=91")
    parser.add_argument("--trials", default="100")
    parser.add_argument("--budget", default="15m")
    chosen = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    print(describe(), flush=True)
    goals = Goals()
    store = chosen.home / "store"
    subprocess.run(
        [
            *COMMAND, "run", chosen.data, "--trials", chosen.trials, "--budget", chosen.budget,
            "--study", STUDY, "--store", str(store), "--quiet",
        ],
        env=environment(chosen.home),
        check=True,
    )  # fmt: skip
    listed = subprocess.run(
        [*COMMAND, "trials", STUDY, "--store", str(store), "--json"],
        env=environment(chosen.home),
        stdout=subprocess.PIPE,
        check=True,
    )
    trials = json.loads(listed.stdout)
    opened = open_store(StoreAddress(str(store)))
    plan = open_study(opened, STUDY).plan
    construct = plan.problem.find_space().steps[0].name
    shown = [(t, steps) for t in trials if (steps := _steps(t, construct))]
    spent = sum(
        step["load_seconds"] + (0.0 if step["hit"] else step["seconds"])
        for _, steps in shown
        for step in steps
    )
    alone_again = partial(seconds_alone, StoreAddress(str(store)))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        alone = sum(pool.map(alone_again, (t for t, _ in shown)))
    by_step = opened.index.totals().steps
    saved = sum(by_step[step].seconds_saved for step in (construct, STEP) if step in by_step)
    print(
        f"{len(shown)} trials of {chosen.data}: construction took {spent:.1f} s, and {alone:.1f} s "
        f"alone; by the cache's count it saved {saved:.1f} s"
    )
    share = saved / (saved + spent)
    goals.at_least("share of the seconds of construction that were served", share, 0.6)
    possible = 1 / (1 - share)
    goals.at_least(
        f"times as quick, of the {possible:.2f} that this share allows",
        alone / spent / possible,
        0.9,
    )
    print(describe())
    goals.end()


def seconds_alone(address: StoreAddress, trial: Mapping[str, Any]) -> float:
    """Construct what a trial constructed, without the cache; return the seconds that it took."""
    opened = open_store(address)
    plan = open_study(opened, STUDY).plan
    space = plan.problem.find_space()
    context = StudyContext(STUDY, plan.problem, address, use_cache=False)
    query = Query.from_json(trial["query"], space)
    if trial["evaluation"]["resumed_from"]:  # its first folds are those of an earlier trial
        query = replace(query, folds=None)
    folds = sorted({step["fold"] for step in _steps(trial, space.steps[0].name)})
    run = PathRun(context, query, folds=folds, space=space)
    started = perf_counter()
    run.run(0)
    return perf_counter() - started


def _steps(trial: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """What a step of a trial took in each fold; nothing of a trial that failed."""
    return [s for s in (trial["evaluation"] or {}).get("steps", ()) if s["step"] == name]


if __name__ == "__main__":
    main()
