"""Speed-up of fits by a second thread, from small tables to large ones.

    tests/benchmarks/run tasks/threads [--rows 1000 10000 50000 200000] [--columns 12]
        [--repeats 5] [--threads 2] [--algorithms lightgbm ...]

The models of the space for tables that declare `threads`, and XGBoost, each with its fewest trees,
on a table of numbers with three classes. Fits with one thread and with several take turns, in the
environment of workers, and the least seconds count. A second thread pays where the ratio is well
above 1; the rule in `tasks/threads.py` follows from where that is.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace

from prefect_tune.tasks.threads import THREAD_VARIABLES

os.environ.update(THREAD_VARIABLES, OMP_WAIT_POLICY="PASSIVE")  # libraries read it as they load

import numpy as np
import pandas as pd
from machine import describe, seconds_of

from prefect_tune.optimizers.models.seconds import cheap_configuration
from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.configuration import Configuration, default_choice
from prefect_tune.optimizers.space.space import Space
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.fitting.recipe import MatrixSummary, build, recipe
from prefect_tune.tasks.threads import one_thread, several_threads

WAYS = {"xgboost": "estimator__n_jobs"}
"""Ways that algorithms do not declare, as their results depend on the number of threads."""


def algorithms(ids: list[str]) -> Iterator[tuple[Algorithm, str]]:
    for algorithm in SPACES["modern"].steps[-1].algorithms:
        way = algorithm.threads or WAYS.get(algorithm.id, "")
        if way and (not ids or algorithm.id in ids):
            yield algorithm, way


def fit_seconds(
    algorithm: Algorithm, way: str, n_threads: int, X: pd.DataFrame, y: object
) -> float:
    chosen = ("fit model", default_choice(algorithm))
    space = Space("alone", (Step("fit model", (replace(algorithm, ignores=()),)),))
    cheap = cheap_configuration(space, Configuration((chosen,)))
    summary = MatrixSummary(*X.shape, "frame", n_classes=3)
    how = recipe(algorithm, dict(cheap.choices)["fit model"], summary, balanced=False)
    estimator = build(how, seed=0)
    with one_thread(), several_threads(estimator, way, n_threads):
        return seconds_of(estimator.fit, X, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000, 10_000, 50_000, 200_000])
    parser.add_argument("--columns", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--algorithms", nargs="*", default=[])
    given = parser.parse_args()
    print(describe())
    rng = np.random.default_rng(0)
    for n in given.rows:
        X = pd.DataFrame(rng.normal(size=(n, given.columns)))
        y = np.digitize(X[0] * X[1] + np.sin(X[2]) + rng.normal(size=n), [-0.5, 0.5])
        for algorithm, way in algorithms(given.algorithms):
            seconds: dict[int, list[float]] = {1: [], given.threads: []}
            for _ in range(given.repeats):
                for n_threads, found in seconds.items():
                    found.append(fit_seconds(algorithm, way, n_threads, X, y))
            alone, together = (min(found) for found in seconds.values())
            print(
                f"{n:7,} rows x {given.columns} {algorithm.id:24} {alone:8.3f} s"
                f" {together:8.3f} s {alone / together:5.2f}",
                flush=True,
            )
    print(describe())


if __name__ == "__main__":
    main()
