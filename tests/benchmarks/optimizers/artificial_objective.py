"""ADMM beside a joint optimiser on the artificial objective of its appendix 15.

    tests/benchmarks/run optimizers/artificial_objective RESULTS.jsonl [--space A3] [--repeats 10]
        [--trials 200] [--methods admm,paper,jopt,random]

Each run (method, world) is a line of the results; runs that are there already are not made again,
so it can be stopped at any time. Worlds are numbered from 100, which none of the choices in the
code has seen. Seconds are processor time of asking, telling and evaluating, one thread; the
objective itself costs nothing, which is the paper's comparison.
"""

import argparse
import warnings
from functools import partial
from pathlib import Path
from statistics import mean, median
from time import process_time
from typing import Any

import numpy as np
from kept_rows import KeptRows
from loss_worlds import A2, A3, ArtificialLoss, artificial_space
from machine import Goals, describe
from threadpoolctl import threadpool_limits
from worlds import told

from prefect_tune.optimizers import Budget, Objective, make_optimizer

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "admm": ("admm", {}),
    "paper": ("admm", {"variant": "paper"}),
    "jopt": ("jopt", {}),
    "random": ("random", {}),
}
SHAPES = {"A3": A3, "A2": A2}
FIRST_WORLD = 100


def run(shape: str, method: str, world: int, n: int) -> dict[str, list[float]]:
    """Best loss and seconds spent after each trial.

    The paper takes rewards from losses as if they were in [0, 1].
    """
    name, options = METHODS[method]
    space, loss_of = artificial_space(SHAPES[shape]), ArtificialLoss(SHAPES[shape], world)
    optimizer = make_optimizer(name, space, world, Objective("artificial", "", 0.0, 1.0), options)
    losses, seconds = list[float](), list[float]()
    started = process_time()
    for number in range(n):
        query = optimizer.ask(Budget(trials_spent=number, trials_left=n - number))
        losses.append(loss_of(query))
        optimizer.tell(told(number, query, losses[-1]))
        seconds.append(process_time() - started)
    return {"losses": np.minimum.accumulate(losses).tolist(), "seconds": seconds}


def seconds_to(run: dict[str, Any], loss: float) -> float:
    """When a run first was as good; infinity when it never was."""
    pairs = zip(run["seconds"], run["losses"], strict=True)
    return next((s for s, x in pairs if x <= loss), float("inf"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--space", choices=SHAPES, default="A3")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--methods", default="admm,paper,jopt,random")
    options = parser.parse_args()
    print(describe())
    warnings.simplefilter("ignore")
    kept, done = KeptRows(options.results, "key"), dict[str, list[Any]]()
    for method in options.methods.split(","):
        for world in range(FIRST_WORLD, FIRST_WORLD + options.repeats):
            key = (options.space, method, world, options.trials)
            row = kept.get_or_make({"key": list(key)}, partial(run, *key))
            done.setdefault(method, []).append(row)
        final = [r["losses"][-1] for r in done[method]]
        half = median(r["losses"][options.trials // 2 - 1] for r in done[method])
        seconds = median(r["seconds"][-1] for r in done[method])
        print(f"{method:<8} best at half {half:.3f}, at the end {median(final):.3f}", end=" ")
        print(f"(mean {mean(final):.3f}); {seconds:.1f} s:", *(f"{x:.3f}" for x in final))
    goals, ratios = Goals(), []
    for mine, theirs in zip(done.get("admm", []), done.get("jopt", []), strict=False):
        goal = theirs["losses"][-1]
        ratios.append(seconds_to(theirs, goal) / seconds_to(mine, goal))
    if ratios:
        print("times sooner than jopt:", *(f"{r:.1f}" for r in ratios))
        ends = [median(r["losses"][-1] for r in done[m]) for m in ("admm", "jopt")]
        goals.at_most("admm / jopt, median best at the end", ends[0] / max(ends[1], 1e-12), 1)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
