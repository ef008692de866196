"""ADMM beside joint optimisers on the artificial objective of its appendix 15.

    tests/benchmarks/run optimizers/artificial_objective RESULTS.jsonl [--space A3] [--repeats 10]
        [--trials 200] [--methods admm,paper,jopt,random,skopt]

Each run (method, world) is a line of the results; runs that are there already are not made again,
so it can be stopped at any time. Worlds are numbered from 100, which none of the choices in the
code has seen. Seconds are processor time of asking, telling and evaluating, one thread; the
objective itself costs nothing, which is the paper's comparison. scikit-optimize is left out when it
is not installed (`uv sync --group benchmark`); it sees the whole space: a category per step and
every hyperparameter.
"""

import argparse
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from kept_rows import KeptRows
from loss_worlds import A2, A3, ArtificialLoss, Shape, artificial_space
from machine import Goals, describe
from threadpoolctl import threadpool_limits
from worlds import told

from prefect_tune.optimizers import (
    Budget,
    Choice,
    Configuration,
    Objective,
    Query,
    Space,
    make_optimizer,
)

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "admm": ("admm", {}),
    "paper": ("admm", {"variant": "paper"}),
    "jopt": ("jopt", {}),
    "random": ("random", {}),
}
FIRST_WORLD = 100
SPEED_UP = 10


def ours(name: str, shape: Shape, world: int, n: int) -> tuple[list[float], list[float]]:
    """Best loss and seconds spent after each trial."""
    method, options = METHODS[name]
    # The paper takes rewards from losses as if they were in [0, 1], and clips.
    objective = Objective("artificial", "", 0.0, 1.0)
    optimizer = make_optimizer(method, artificial_space(shape), world, objective, options)
    loss_of = ArtificialLoss(shape, world)
    losses, seconds = [], []
    started = process_time()
    for number in range(n):
        query = optimizer.ask(Budget(trials_spent=number, trials_left=n - number))
        losses.append(loss_of(query))
        optimizer.tell(told(number, query, losses[-1]))
        seconds.append(process_time() - started)
    return list(np.minimum.accumulate(losses)), seconds


def skopt(shape: Shape, world: int, n: int) -> tuple[list[float], list[float]]:
    """The same of scikit-optimize's joint Gaussian process."""
    import skopt

    space = artificial_space(shape)
    names = [
        (s.name, a.id, h.name)
        for s in space.searched
        for a in s.algorithms
        for h in a.hyperparameters.values()
    ]
    dimensions: list[Any] = [
        skopt.space.Categorical([a.id for a in s.algorithms]) for s in space.searched
    ]
    dimensions += [
        skopt.space.Real(1.0, 10.0) if name.startswith("c") else skopt.space.Integer(1, 10)
        for _, _, name in names
    ]
    optimizer = skopt.Optimizer(dimensions, "GP", random_state=world)
    loss_of = ArtificialLoss(shape, world)
    losses, seconds = [], []
    started = process_time()
    for _ in range(n):
        point = optimizer.ask()
        losses.append(loss_of(as_query(space, names, point)))
        optimizer.tell(point, losses[-1])
        seconds.append(process_time() - started)
    return list(np.minimum.accumulate(losses)), seconds


def as_query(space: Space, names: list[tuple[str, str, str]], point: list[Any]) -> Query:
    n_steps = len(space.searched)
    values = dict(zip(names, point[n_steps:], strict=True))
    choices = []
    for step, algorithm in zip(space.searched, point[:n_steps], strict=True):
        mine = {k[2]: v for k, v in values.items() if k[:2] == (step.name, algorithm)}
        choices.append((step.name, Choice(algorithm, tuple(sorted(mine.items())))))
    return Query(Configuration(tuple(choices)))


def run_all(options: argparse.Namespace) -> dict[str, dict[int, Any]]:
    kept = KeptRows(Path(options.results), "space", "trials", "method", "world")
    same = {"space": options.space, "trials": options.trials}
    for world in range(FIRST_WORLD, FIRST_WORLD + options.repeats):
        for method in options.methods.split(","):
            key = {**same, "method": method, "world": world}
            try:
                kept.get_or_make(key, partial(made_run, options, method, world))
            except ImportError:
                print("scikit-optimize is not installed; it is left out")
    done: dict[str, dict[int, Any]] = {}
    for run in kept.rows:
        if same.items() <= run.items():
            done.setdefault(run["method"], {})[run["world"]] = run
    return done


def made_run(options: argparse.Namespace, method: str, world: int) -> dict[str, Any]:
    arguments = {"A3": A3, "A2": A2}[options.space], world, options.trials
    losses, seconds = skopt(*arguments) if method == "skopt" else ours(method, *arguments)
    return {"losses": losses, "seconds": seconds}


def seconds_to(run: dict[str, Any], loss: float) -> float:
    """When a run first was as good; infinity when it never was."""
    reached = [s for s, x in zip(run["seconds"], run["losses"], strict=True) if x <= loss]
    return reached[0] if reached else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results")
    parser.add_argument("--space", choices=["A3", "A2"], default="A3")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--methods", default="admm,paper,jopt,random,skopt")
    options = parser.parse_args()
    print(describe())
    warnings.simplefilter("ignore")
    done = run_all(options)
    finals: dict[str, dict[int, float]] = {}
    for method, runs in done.items():
        finals[method] = {world: run["losses"][-1] for world, run in runs.items()}
        half = [run["losses"][options.trials // 2 - 1] for run in runs.values()]
        final = list(finals[method].values())
        print(
            f"{method:<12} {len(runs)} runs; best at half {median(half):.3f}, at the end "
            f"{median(final):.3f} (mean {np.mean(final):.3f}); "
            f"{median(run['seconds'][-1] for run in runs.values()):.1f} s"
        )
        print("  " + " ".join(f"{x:.3f}" for x in final))
    goals = Goals()
    if {"admm", "jopt"} <= done.keys():
        ratio = median(finals["admm"].values()) / max(median(finals["jopt"].values()), 1e-12)
        goals.at_most("admm / jopt, median best at the end", ratio, 1)
    for theirs in {"skopt", "jopt"} & done.keys():
        common = done["admm"].keys() & done[theirs].keys() if "admm" in done else set()
        ratios = [
            seconds_to(done[theirs][w], finals[theirs][w])
            / seconds_to(done["admm"][w], finals[theirs][w])
            for w in sorted(common)
        ]
        print(f"times sooner than {theirs}: " + " ".join(f"{r:.1f}" for r in ratios))
        if theirs == "skopt" and ratios:
            goals.at_least("times sooner than scikit-optimize, median", median(ratios), SPEED_UP)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
