"""Methods on the recorded grids of SVMs: what it costs until their choice is good, and stays good.

    tests/benchmarks/run optimizers/svm_search FOLDER [--table mnist_t10k,cal_housing]
        [--methods fabolas,ei,es,mtbo,hyperband,random] [--scales 1,100] [--seeds 10] [--workers 4]

FOLDER keeps the runs (`svm_runs.jsonl`); those that are there are not run again. A method may have
options, as in `fabolas:variant=paper`. The clock is simulated: an evaluation takes the seconds that
were recorded for it, times the scale, and an ask the processor time that it takes here. What it
costs to see the incumbent after each tell is not counted.

Costs are in full evaluations (their mean over the grid), and those to a lasting error: one that the
incumbent's full training has within so much of the grid's best, from then on to the end of the run.
With `--workers 4` methods are asked four times before the four outcomes are told, and regrets at
equal numbers of evaluations are compared with those of asking and telling in turn.
"""

import argparse
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
from anytime import Contestant, Curve, in_batches, named, watched
from kept_rows import KeptRows
from machine import Goals, describe
from recorded_svms import Grid
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import make_optimizer

TABLES = ("mnist_t10k", "cal_housing", "phishing_websites")
"""Of the last two small subsets tell little of which configurations are best on all rows."""
METHODS = "fabolas,ei,es,mtbo,hyperband,random"
WITHIN = (2.0, 1.0, 0.5, 0.25)
"""Percentage points from the grid's best."""
EVALUATIONS = {"fabolas": 110, "mtbo": 60, "ei": 40, "es": 40}
MOST = 60.0
"""Full evaluations after which every run ends."""
COMPARED_FROM = 30
"""Evaluations after which regrets with more workers are compared: the first design is done."""


def run(grid: Grid, contestant: Contestant, scale: float, seed: int, n_workers: int) -> Curve:
    """One run of a method on a grid."""
    number = zlib.crc32(f"{grid.space.name}{seed}".encode())
    subsets = {"fidelity": "subset"} if contestant.method in {"hyperband", "halving"} else {}
    options = {**subsets, **contestant.options}
    optimizer = make_optimizer(contestant.method, grid.space, number, grid.objective, options)

    def outcome(query):
        error, seconds = grid.outcome(query)
        return error, scale * seconds

    n = EVALUATIONS.get(contestant.method, 100_000)
    if n_workers > 1:
        return in_batches(optimizer, outcome, grid.full_error, evaluations=n, size=n_workers)
    seconds = MOST * scale * grid.full_cost
    return watched(optimizer, outcome, grid.full_error, evaluations=n, seconds=seconds)


def report(grid: Grid, text: str, curves: list[Curve], unit: float) -> float:
    """Print what a method needed, with raw values; return the median cost to half a point."""
    costs = {w: [c.lasting(grid.best + w) / unit for c in curves] for w in WITHIN}
    last = [c.worths[-1] for c in curves]
    shares = np.concatenate([c.shares for c in curves])
    parts = [np.mean((shares > low) & (shares <= 2 * low)) for low in (0.5, 0.25, 0.125, 0.0625)]
    asks = np.concatenate([c.asks for c in curves])
    print(
        f"  {text}: to within "
        + ", ".join(f"{w:g} {np.median(x):.2f}" for w, x in costs.items())
        + f"; at the end {np.median(last):.2f} % (worst {max(last):.2f} %) after "
        f"{np.median([c.ends[-1] for c in curves]) / unit:.1f} in "
        f"{np.median([len(c.ends) for c in curves]):.0f} evaluations; "
        f"full, 1/2, 1/4, 1/8, less: {' '.join(f'{p:.0%}' for p in parts)} {1 - sum(parts):.0%}; "
        f"ask {np.median(asks):.3f} s"
    )
    print(f"    to 0.5, each seed: {' '.join(f'{x:.2f}' for x in costs[0.5])}")
    first = [c.first(grid.best + 0.5) / unit for c in curves]
    print(f"    first at 0.5:      {' '.join(f'{x:.2f}' for x in first)}", flush=True)
    return float(np.median(costs[0.5]))


def regret(grid: Grid, curve: Curve) -> float:
    """Mean regret over the evaluations after the first design, percentage points."""
    worths = [100.0 if w is None else w for w in curve.worths[COMPARED_FROM:]]
    return float(np.mean(worths)) - grid.best


def compare_workers(
    grid: Grid, contestant: Contestant, alone: list[Curve], together: list[Curve], goals: Goals
) -> None:
    """Print regrets of one worker and of several, at equal evaluations."""
    regrets = [[regret(grid, c) for c in curves] for curves in (alone, together)]
    for n, values in zip(("one", "more"), regrets, strict=True):
        print(f"    mean regret, {n}: {' '.join(f'{x:.3f}' for x in values)}")
    medians = [float(np.median(values)) for values in regrets]
    what = f"{grid.space.name}: {contestant.text}, regret with more workers / with one"
    goals.at_most(what, medians[1] / max(medians[0], 1e-9), 1.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--table", default=",".join(TABLES))
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--scales", default="100,1")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    print(describe())
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    runs = KeptRows(folder / "svm_runs.jsonl", "key")
    goals = Goals()
    for name in options.table.split(","):
        grid = Grid(name)
        for scale in map(float, options.scales.split(",")):
            unit = scale * grid.full_cost
            print(f"{name}, best {grid.best:.2f} %, a full evaluation {unit:.1f} s (x{scale:g})")

            def curves(contestant: Contestant, n: int, grid=grid, scale=scale) -> list[Curve]:
                key = {"table": grid.space.name, "method": contestant.text, "scale": scale}
                rows = [
                    runs.get_or_make(
                        {"key": {**key, "workers": n, "seed": seed}},
                        lambda seed=seed: {"curve": asdict(run(grid, contestant, scale, seed, n))},
                    )
                    for seed in range(options.seeds)
                ]
                return [Curve(**row["curve"]) for row in rows]

            medians = {}
            for contestant in named(options.methods):
                alone = curves(contestant, 1)
                medians[contestant.text] = report(grid, contestant.text, alone, unit)
                if options.workers > 1:
                    together = curves(contestant, options.workers)
                    report(grid, f"{contestant.text}, {options.workers} workers", together, unit)
                    compare_workers(grid, contestant, alone, together, goals)
            for other, factor in (("ei", 15), ("hyperband", 3)):
                if {"fabolas", other} <= medians.keys():
                    what = f"{name}, x{scale:g}: cost of {other} / of fabolas"
                    goals.at_least(what, medians[other] / medians["fabolas"], factor)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
