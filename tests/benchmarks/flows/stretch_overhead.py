"""What going on with a configuration costs besides training: by one more fold, or one more epoch.

    tests/benchmarks/run flows/stretch_overhead [--fidelity folds|epochs] [--configurations 20]
        [--folds 3] [--epochs 5] [--rows 2000]

A study on one worker with all of its parts: flow, Prefect server, Dask, ledger, cache and records.
Its method begins a configuration on the first fold, or for an epoch on all folds, and goes on with
it fold by fold or epoch by epoch; all before is served or goes on from its checkpoint. From one
outcome told to the next, the time is measured that is not spent in fitting and transforming, and
printed as its median and 90th percentile: of stretches that go on, and of those that begin. Beside
it, how much of it passes in the trial, and around it (ask, Prefect, Dask, ledger). On a busy
machine that is mostly waiting for a core, so the CPU time of flow and worker stands beside it: that
of whole stretches, training included, without the server's.
"""

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Literal

import numpy as np
import psutil
from inputs import table
from machine import Goals, describe

from prefect_tune.deployments.server.embedded import local_server
from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.progress import Progress, observed_by
from prefect_tune.flows.tuning import tune
from prefect_tune.flows.workers.clusters import workers_started_early
from prefect_tune.optimizers import Budget, Method, Optimizer, Query, Trial, register
from prefect_tune.optimizers.space.sampling import SpaceExhausted, sample_configuration

GOAL_SECONDS = 0.1
PATHS = {
    "folds": ("standardize", "none", "pca", "gaussian_nb"),
    "epochs": ("standardize", "none", "pca", "sgd"),
}
"""Of space flash: training takes some milliseconds, so that overhead shows."""
WARM_UP = 2
"""So many configurations at first are not counted: the worker is still importing."""


@dataclass(frozen=True)
class Options:
    """Options of `OneByOne`.

    Attributes:
        fidelity: What there is one more of in each stretch, folds or epochs.
    """

    fidelity: Literal["folds", "epochs"] = "folds"


class OneByOne(Optimizer):
    """Draws a configuration and evaluates it one fold or epoch more at a time; then the next."""

    method: ClassVar[Method] = Method(
        name="one_by_one",
        purpose="each configuration one fold or epoch more at a time",
        implementation=f"{__name__}:OneByOne",
        options=Options,
        fidelities=frozenset({"folds", "epochs"}),
        compared_by_default=False,
    )

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:
        fidelity = self.options.fidelity
        last = max(self.history, key=lambda t: t.number, default=None)
        if last is None or last.query.is_full or last.failure is not None:
            if budget.trials_left == 0:
                raise SpaceExhausted("all are evaluated")
            query = Query(sample_configuration(self.space, rng, PATHS[fidelity]))
            return replace(query, **{fidelity: 1})
        return replace(last.query, **{fidelity: getattr(last.query, fidelity) + 1})


class Clock:
    """Observer that notes when each outcome was told."""

    def __init__(self, server_pid: int) -> None:
        server = psutil.Process(server_pid)
        self._server = {server.pid, *(p.pid for p in server.children(recursive=True))}
        self.told: list[tuple[float, float, Trial]] = []

    def note(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""

    def tick(self, progress: Progress) -> None:
        """Nothing."""

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        self.told.append((monotonic(), self._cpu_seconds(), trial))

    def _cpu_seconds(self) -> float:
        me = psutil.Process()
        ours = [me, *(p for p in me.children(recursive=True) if p.pid not in self._server)]
        times = [process.cpu_times() for process in ours]
        return sum(t.user + t.system for t in times)

    def overheads(self) -> Iterator[tuple[bool, float, float, float]]:
        """Of each stretch, whether it goes on with a configuration, its overhead in seconds, how
        much of that passed in the trial, and CPU seconds.
        """
        configurations: list[Any] = []
        for (before, used_before, _), (after, used, trial) in pairwise(self.told):
            went_on = trial.query.configuration in configurations
            configurations.append(trial.query.configuration)
            if (done := trial.evaluation) is None or len(set(configurations)) <= WARM_UP:
                continue
            made = sum(step.seconds for step in done.steps if not step.hit)
            in_trial = done.cost_seconds - made
            yield went_on, after - before - made, in_trial, used - used_before


def measured(options: argparse.Namespace, folder: Path) -> Clock:
    """Run the study, and return when what was told."""
    table(options.rows).to_parquet(folder / "table.parquet", index=False)
    note = json.loads((folder / "server" / "server.json").read_text())
    clock = Clock(note["pid"])
    with observed_by(clock), workers_started_early(1, None):
        tune(
            data=str(folder / "table.parquet"),
            target="target",
            space="flash",
            method="one_by_one",
            option={"fidelity": options.fidelity},
            epochs=options.epochs if options.fidelity == "epochs" else None,
            folds=options.folds,
            trials=options.configurations + WARM_UP,
            workers=1,
            study="stretches",
            store=str(folder / "store"),
            task_runs=options.task_runs,
        )
    return clock


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--configurations", type=int, default=20)
    parser.add_argument("--fidelity", default="folds", choices=sorted(PATHS))
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--task-runs", default="auto", choices=("auto", "steps", "misses", "trial"))
    options = parser.parse_args()
    set_defaults(QUIET_CONSOLE)
    register(OneByOne.method)
    print(describe())
    with tempfile.TemporaryDirectory() as home:
        os.environ["PREFECT_TUNE_HOME"] = home
        with local_server():
            clock = measured(options, Path(home))
    found = list(clock.overheads())
    goals = Goals()
    for name, is_gone_on in (("begin", False), ("go on", True)):
        rows = np.array([row[1:] for row in found if row[0] == is_gone_on])
        in_all, in_trial, cpu = rows.T
        print(
            f"{len(rows)} stretches that {name}: median {1000 * np.median(in_all):.0f} ms, 90th "
            f"percentile {1000 * np.quantile(in_all, 0.9):.0f} ms; of it in the trial "
            f"{1000 * np.median(in_trial):.0f} ms, around it "
            f"{1000 * np.median(in_all - in_trial):.0f} ms; {1000 * np.median(cpu):.0f} ms of CPU"
        )
        if is_gone_on:
            goals.at_most("seconds to go on, median", float(np.median(in_all)), GOAL_SECONDS)
    print(describe())
    goals.end()


if __name__ == "__main__":
    main()
