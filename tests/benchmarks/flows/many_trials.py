"""Studies of very many trials: what one more costs, and what resuming and showing them take.

    tests/benchmarks/run flows/many_trials [--methods random,tpe] [--trials 100000]

First a study of 10,000 trials of 12 steps: the memory that the search took for it, the seconds that
another process takes to resume it, and those of `show`. Then studies of trials that take a
millisecond each, on a worker of this process: the rate of the first thousand beside that of the
last. Ledger, optimizer and loop are the real ones; nothing is reported to a server.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter, sleep
from typing import Any

import psutil
from flow_studies import enter
from inputs import write_table
from machine import Goals, describe
from silent import Silent
from studies import problem_of

from prefect_tune.flows.options.values import StopRule
from prefect_tune.flows.progress import RunningTrial
from prefect_tune.flows.search import search
from prefect_tune.flows.study.study import Study
from prefect_tune.flows.workers.dask_trials import Ended
from prefect_tune.optimizers import Evaluation, StepCost, Trial
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.problem import StudyContext, open_store
from prefect_tune.tasks.trial.evaluate import TrialOutcome

TRIALS, STEPS = 10_000, 12
RESUME_SECONDS, GROWTH_MB, SHOW_SECONDS, LEAST_RATE = 10.0, 150.0, 1.0, 0.5
TRIAL_SECONDS = 0.001
RATED = 1_000
"""Trials at either end over which a rate is taken."""


@dataclass
class Worker:
    """One slot in this process; a trial's loss is a hash of its query.

    Attributes:
        n_steps: Steps that each trial says it took.
        seconds: Time that one takes.
        ended: When each ended.
    """

    n_steps: int
    seconds: float
    n_slots: int = 1
    n_task_runs: int = 0
    under_way: list[Trial] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    @property
    def n_running(self) -> int:
        return len(self.under_way)

    @property
    def standing(self) -> tuple[RunningTrial, ...]:
        running = (t.query.configuration.path for t in self.under_way)
        return tuple(RunningTrial(0, path, 1.0, 9.0) for path in running)

    def has_room(self) -> bool:
        return not self.under_way

    def submit(self, trial: Trial, report: str, limit_seconds: float) -> None:  # noqa: ARG002
        self.under_way.append(trial)

    def collect(self, timeout_seconds: float) -> list[Ended]:  # noqa: ARG002 - it never waits
        sleep(self.seconds)
        trial = self.under_way.pop()
        self.ended.append(monotonic())
        of = hash(trial.query.configuration)
        steps = tuple(self._step(trial, of, i) for i in range(self.n_steps))
        loss = of % 10_007 / 100
        evaluation = Evaluation(loss, (loss,) * 3, self.seconds, self.seconds, steps)
        return [Ended(trial, TrialOutcome(evaluation, None, 1))]

    def cut(self, reason: str) -> list[Trial]:  # noqa: ARG002 - the interface's
        cut, self.under_way = self.under_way, []
        return cut

    def _step(self, trial: Trial, of: int, i: int) -> StepCost:
        is_shared = i < self.n_steps // 2
        key = f"{(trial.number % 50 if is_shared else of) * 31 + i:064x}"[-64:]
        return StepCost(f"step {i // 3}", i % 3, 0.01, 0.001, hit=is_shared, key=key)


class Submitting(Silent):
    """Follows nothing, and lets all be submitted."""

    report = "trial"

    def may_submit(self, n_reported: int) -> bool:  # noqa: ARG002 - the interface's
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--methods", default="random,tpe")
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--resume", nargs=2, metavar=("STORE", "STUDY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.resume:
        print(json.dumps(resumed(*options.resume)))
        return
    goals = Goals()
    with tempfile.TemporaryDirectory() as folder:
        print(describe(), flush=True)
        store = new_store(Path(folder))
        of_many_steps(store, goals)
        for method in options.methods.split(","):
            of_short_trials(store, method, options.trials, goals)
    goals.end()


def of_many_steps(store: ArtifactStore, goals: Goals) -> None:
    """Measure a study of 10,000 trials of 12 steps."""
    name, process = "steps", psutil.Process()
    new_study(store, name, "random")
    run(store, name, 100, Worker(STEPS, 0.0))
    before = process.memory_info().rss
    run(store, name, TRIALS, Worker(STEPS, 0.0))
    goals.at_most("search: growth, MB", (process.memory_info().rss - before) / 1e6, GROWTH_MB)
    command = [sys.executable, __file__, "--resume", store.address.url, name]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    goals.at_most("resume: seconds", found["seconds"], RESUME_SECONDS)
    goals.at_most("resume: growth, MB", found["growth_mb"], GROWTH_MB)
    show = [sys.executable, "-m", "prefect_tune.deployments", "show", name]
    started = perf_counter()
    subprocess.run([*show, "--store", store.address.url], check=True, capture_output=True)
    goals.at_most("show: seconds", perf_counter() - started, SHOW_SECONDS)


def of_short_trials(store: ArtifactStore, method: str, n_trials: int, goals: Goals) -> None:
    """Compare the rate of the last trials with that of the first."""
    new_study(store, method, method)
    worker = Worker(0, TRIAL_SECONDS)
    run(store, method, n_trials, worker)
    first, last = rate(worker.ended[:RATED]), rate(worker.ended[-RATED:])
    whole = rate(worker.ended)
    print(f"{method}: {first:.0f} trials a second at first, {last:.0f} at last, {whole:.0f} in all")
    goals.at_least(f"{method}: rate of all / of the first {RATED}", whole / first, LEAST_RATE)


def rate(ended: list[float]) -> float:
    """Trials a second."""
    return (len(ended) - 1) / (ended[-1] - ended[0])


def resumed(url: str, name: str) -> dict[str, float]:
    """Open a study in a process of its own: seconds, and megabytes that it took."""
    store, process = open_store(StoreAddress(url)), psutil.Process()
    before, started = process.memory_info().rss, perf_counter()
    with Study.opened(store, name) as study:
        assert study.n_asked == TRIALS
        growth = process.memory_info().rss - before
        return {"seconds": perf_counter() - started, "growth_mb": growth / 1e6}


def new_store(folder: Path) -> ArtifactStore:
    """An empty store beside a table."""
    write_table(folder)
    return open_store(StoreAddress(str(folder / "store")))


def new_study(store: ArtifactStore, name: str, method: str) -> None:
    """Enter a study of the table that was written beside the store."""
    table = next(Path(store.address.url).parent.glob("*.csv"))
    source = Source(str(table), target="target")
    problem = problem_of(source, store, space_named("flash"))
    enter(StudyContext(name, problem, store.address), name, method=method)


def run(store: ArtifactStore, name: str, n_trials: int, worker: Worker) -> None:
    """Search until a study has so many trials."""
    observer: Any = Submitting()
    with Study.opened(store, name) as study, study.timed(), study.searching():
        running: Any = worker
        search(study, running, StopRule(trials=n_trials), observer, observer)


if __name__ == "__main__":
    main()
