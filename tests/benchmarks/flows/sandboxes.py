"""What sandboxes cost: CPU of the flow's process for a trial, and the time after a time limit.

    tests/benchmarks/run flows/sandboxes [--trials 60] [--timeouts 8] [--killed 200]

The flow's process drives all trials of at most four slots, so the CPU that a trial costs there
bounds the trials a second. Trials are quick pipelines without a cache, whose steps are task runs.
After a trial's time limit, its slot gets a new sandbox, which loads the data before its first step:
from the limit to that step, at most .3 s may pass on a small table, and .5 s on a million rows.
Last, 200 trials run in four slots while every 15 s a random sandbox or the zygote is killed: all
are to complete or to fail for a reason of their own, none is lost or doubled, and nothing is left.
"""

import argparse
import statistics
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import process_time

import numpy as np
import pandas as pd
import psutil
from machine import Goals, describe
from user_spaces import PRELUDE

from prefect_tune import local_server, tune
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger

ROWS = (1_000, 1_000_000)
GOALS = (0.3, 0.5)
LIMITS = (3.0, 15.0)
"""Time limits of trials in seconds, in which the first trial ends."""
SPACE = f"""{PRELUDE}
import time


class Marks(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        if len(X) >= {{n_least}}:  # not in a pilot
            with open({{file!r}}, "a") as file:
                print(time.time(), file=file)
        return self

    def transform(self, X):
        return X


class Hangs(GaussianNB):
    def fit(self, X, y):
        with open({{file!r}}) as file:
            n_trials = len(file.readlines())
        # The first trial and the refit have a result, and so have pilots.
        if len(X) >= {{n_least}} and 1 < n_trials <= {{n_timeouts}} + 1:
            sleep(1000)
        return super().fit(X, y)


first = Step("mark", (one("marks", Marks),))
space = Space("own", (first, Step("fit model", (one("hangs", Hangs, SMOOTHING),))))
"""


def write_table(path: Path, n_rows: int) -> str:
    """Write a table of six numeric columns and two classes; return its path."""
    X = np.random.default_rng(0).normal(size=(n_rows, 6))
    frame = pd.DataFrame(X, columns=[f"x{k}" for k in range(6)]).assign(y=X[:, 0] > 0)
    frame.to_parquet(path)
    return str(path)


def cpu_of_trial(folder: Path, n_trials: int, n_workers: int) -> float:
    """CPU seconds of this process, which runs the flow, for a trial."""
    data = write_table(folder / "cpu.parquet", 200)
    used = []
    for n in (10, 10 + n_trials):
        store = str(folder / f"cpu{n}-{n_workers}")
        given = {"target": "y", "space": "small", "method": "random", "no_cache": True}
        before = process_time()
        tune(data, trials=n, workers=n_workers, store=store, task_runs="steps", **given)
        used.append(process_time() - before)
    return (used[1] - used[0]) / n_trials


def seconds_after_limit(folder: Path, n_rows: int, limit: float, n_timeouts: int) -> float:
    """Median seconds from a trial's time limit to the first step of the next trial."""
    marks, space = folder / f"marks{n_rows}", folder / f"space{n_rows}.py"
    space.write_text(SPACE.format(file=str(marks), n_timeouts=n_timeouts, n_least=n_rows // 2))
    given = {"target": "y", "method": "random", "workers": 1, "no_cache": True, "seed": 0}
    given |= {"holdout": 0.3, "store": str(folder / f"limit{n_rows}"), "trials": n_timeouts + 1}
    data = write_table(folder / f"limit{n_rows}.parquet", n_rows)
    tune(data, space=f"{space}:space", trial_timeout=f"{limit:g}s", **given)
    times = np.loadtxt(marks)[1 : n_timeouts + 1]  # the second trial is the first that hangs
    return statistics.median(np.diff(times) - limit)


def run_while_killed(folder: Path, n_trials: int, every_seconds: float = 15.0) -> None:
    """Run trials while random processes of ours are killed; print what came of them."""
    data = write_table(folder / "killed.parquet", 200)
    store, done, rng = str(folder / "killed"), Event(), np.random.default_rng(0)
    n_killed = 0

    def kill() -> None:
        nonlocal n_killed
        while not done.wait(every_seconds):
            if ours := processes():
                with suppress(psutil.NoSuchProcess):
                    ours[rng.integers(len(ours))].kill()
                    n_killed += 1

    killer = Thread(target=kill)
    killer.start()
    given = {"target": "y", "space": "small", "method": "random", "no_cache": True, "seed": 0}
    try:
        summary = tune(data, trials=n_trials, workers=4, store=store, study="killed", **given)
    finally:
        done.set()
        killer.join()
    trials = Ledger(ArtifactStore(StoreAddress(store)).database).trials("killed")
    numbers = [trial["number"] for trial in trials]
    reasons = Counter(t["failure"]["message"] for t in trials if t.get("failure"))
    print(f"{n_killed} processes killed; {len(set(numbers))} of {n_trials} trials told once: ")
    print(f"  {Counter(trial['state'] for trial in trials)}, failures {dict(reasons)}")
    print(f"  {summary['n_trials']} trials counted, {len(processes()) - 1} processes left")


def processes() -> list[psutil.Process]:
    """The zygote and the sandboxes of this process."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "sandbox.zygote" in " ".join(child.cmdline()) and child.status() != "zombie":
                found.append(child)
    return found


def main() -> None:
    """Print the figures, and exit with 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--timeouts", type=int, default=8)
    parser.add_argument("--killed", type=int, default=200)
    options = parser.parse_args()
    print(describe())
    goals = Goals()
    with tempfile.TemporaryDirectory() as name, local_server():
        folder = Path(name)
        for n_workers in (2, 4):
            seconds = cpu_of_trial(folder, options.trials, n_workers)
            print(f"{n_workers} slots: {1000 * seconds:.0f} ms CPU of the flow's process a trial")
        for n_rows, limit, goal in zip(ROWS, LIMITS, GOALS, strict=True):
            after = seconds_after_limit(folder, n_rows, limit, options.timeouts)
            goals.at_most(f"seconds after a limit, {n_rows:,} rows", after, goal)
        run_while_killed(folder, options.killed)
    goals.end()


if __name__ == "__main__":
    main()
