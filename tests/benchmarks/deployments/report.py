"""How long a report of 10,000 trials takes to make and to open, and how large it is.

    tests/benchmarks/run deployments/report [TRIALS]

Enters a study of so many trials in the space `modern` into a new store: full ones, some that a
race has ended and some failed, with their events, steps and artifacts, and a measured quantity.
Makes its report by the command, in a process of its own, and opens it in headless Chromium.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import monotonic, time

import numpy as np
from entered_studies import artifact, enter
from machine import Goals, describe
from playwright.sync_api import sync_playwright
from processes import BROWSER, COMMAND
from sqlalchemy import insert

from prefect_tune.optimizers import Asked, Budget, Evaluation, Failure, Query, StepCost, Told, Trial
from prefect_tune.optimizers.events import event_document
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.schema import artifact_table, event_table, trial_table
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.objective.declaration import Quantity, QuantityBound

SPACE = space_named("modern")
FOLDS = 3
AT_ONCE = 500
MESSAGES = (
    (FailureKind.TIMEOUT, "took more than 15 s (raise the limit with --trial-timeout)", ""),
    (FailureKind.MEMORY, "took more than 2.0GB (raise the limit with --trial-memory)", ""),
    (
        FailureKind.ERROR,
        "LinAlgError: singular matrix <b> & co",
        "Traceback (most recent call last):\n" * 90,
    ),
)


def trials(n: int) -> Iterator[Trial]:
    rng = np.random.default_rng(0)
    made: dict[tuple[str, int], list[str]] = {}
    worth = {a.id: rng.random() for step in SPACE.steps for a in step.algorithms}
    for number in range(n):
        configuration = sample_configuration(SPACE, rng)
        ends_early = rng.random() < 0.4
        query = Query(configuration, folds=1 if ends_early else None)
        steps = tuple(
            step_cost(step.name, fold, made, rng)
            for step in SPACE.steps
            for fold in range(1 if ends_early else FOLDS)
        )
        trial = Trial(number, query).started()
        if rng.random() < 0.05:
            kind, message, traceback = MESSAGES[number % len(MESSAGES)]
            yield trial.failed(Failure(kind, message, traceback, "fit model", 0, 15.0, steps[:3]))
            continue
        path = [worth[algorithm] for algorithm in configuration.path]
        loss = float(10 + 10 * path[-1] + 3 * sum(path[:-1]) + rng.gamma(1.0))
        losses = tuple(loss + rng.normal(size=1 if ends_early else FOLDS))
        quantities = {"latency_us": float(np.exp(rng.normal(4 + 3 * path[-1], 1)))}
        evaluation = Evaluation(float(np.mean(losses)), losses, 1.0, 2.0, steps, quantities)
        yield trial.ended(evaluation)


def step_cost(
    step: str, fold: int, made: dict[tuple[str, int], list[str]], rng: np.random.Generator
) -> StepCost:
    """Two of five are served what an earlier trial has made."""
    known = made.setdefault((step, fold), [])
    if known and rng.random() < 0.4:
        return StepCost(step, fold, 0.1, 0.01, hit=True, key=known[rng.integers(len(known))])
    known.append(rng.bytes(32).hex())
    return StepCost(step, fold, 0.1, 0.01, hit=False, key=known[-1])


def fill(folder: Path, n: int) -> None:
    """Enter a finished study of `n` trials."""
    store = ArtifactStore(StoreAddress(str(folder)))
    bounds = (QuantityBound(Quantity("latency_us"), 400.0),)
    ledger = enter(store, SPACE, race=True, constraint=bounds)
    best: Trial | None = None
    sequence = n_artifacts = 0
    made_up = trials(n)
    while some := list(islice(made_up, AT_ONCE)):
        events, told, artifacts = [], [], []
        for trial in some:
            is_full = trial.evaluation is not None and trial.query.is_full
            if is_full and trial.evaluation.constraints["latency_us"] <= 400:
                best = trial if best is None or trial.loss < best.loss else best
            body = {**event_document(Asked(trial.number, trial.query, Budget())), "seconds": 0.1}
            body["reason"] = {"phase": "design" if trial.number < 40 else "tuning", "text": "so"}
            since = {"elapsed_seconds": trial.number * 0.7, "incumbent": best and best.number}
            for kind, value in ((Asked.kind, body), (Told.kind, trial.to_json() | since)):
                event = {"study": "s", "sequence": sequence, "kind": kind, "body": value}
                events.append(event | {"at": time()})
                sequence += 1
            document = {"number": trial.number, "state": str(trial.state), "body": trial.to_json()}
            told.append({"study": "s", **document})
            steps = trial.evaluation.steps if trial.evaluation else ()
            made = [step for step in steps if not step.hit]
            artifacts += [
                artifact(step, i, is_present=i % 3 > 0) for i, step in enumerate(made, n_artifacts)
            ]
            n_artifacts += len(made)
        with store.database.write() as connection:
            connection.execute(insert(event_table), events)
            connection.execute(insert(trial_table), told)
            connection.execute(insert(artifact_table), artifacts)
    members = [{"trial": best.number, "weight": 1.0}] if best else []
    ledger.update_study("s", state="complete", result={"test_loss": 15.0, "members": members})
    store.close()


def opened(file: Path) -> tuple[float, float, list[str]]:
    """Seconds until the page and its first figures are there, until all are, and its errors."""
    errors: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.on("console", lambda said: errors.append(said.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        started = monotonic()
        page.goto(file.as_uri())
        page.wait_for_selector(".figure .main-svg")
        first = monotonic() - started
        page.wait_for_selector("html[data-figures=drawn]", timeout=60_000)
        return first, monotonic() - started, errors


def main() -> None:
    n, goals = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000, Goals()
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder, "store"), n)
        print(describe())
        file = Path(folder, "report.html")
        command = [*COMMAND, "report", "s", "--store", f"{folder}/store", "--out", str(file)]
        started = monotonic()
        subprocess.run(command, check=True)
        goals.at_most(f"report of {n:,} trials made, s", monotonic() - started, 10)
        used = getrusage(RUSAGE_CHILDREN)
        print(f"    of which on a core: {used.ru_utime + used.ru_stime:.2f} s")
        goals.at_most("its size, MB", file.stat().st_size / 1e6, 5)
        first, all_of_them, errors = opened(file)
        goals.at_most("opened with its first figures drawn, s", first, 2)
        print(f"    all figures drawn after {all_of_them:.2f} s")
        goals.at_most("messages on the console", len(errors), 0)
        print(*errors, sep="\n")
        if len(sys.argv) > 2:
            shutil.copy(file, sys.argv[2])
    goals.end()


if __name__ == "__main__":
    main()
