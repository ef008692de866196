"""Methods on recorded grids of SVMs: the cost until the incumbent is good and stays good.

    tests/benchmarks/run optimizers/svm_search FOLDER [--table mnist_t10k,cal_housing]
        [--methods fabolas,ei,es,mtbo,hyperband,random] [--scales 100,1] [--seeds 10]

FOLDER keeps the runs (`svm_runs.jsonl`); stored runs are not repeated. A method may have options,
as in `fabolas:variant=paper`. The clock is simulated: an evaluation takes its recorded seconds
times the scale, and an ask takes its real processor time. Reading the incumbent after each tell
costs nothing. The unit of costs is the mean cost of a full evaluation on the grid. The figure is
the cost after which the incumbent stays good to the end of the run: its error after training on all
rows stays within a tolerance of the best error of the grid.
"""

import argparse
import zlib
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from anytime import Contestant, Curve, named, watched
from kept_rows import KeptRows
from machine import Goals, describe
from recorded_svms import Grid
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import Query, make_optimizer

TABLES = "mnist_t10k,cal_housing,phishing_websites"
"""In the last two, small subsets tell little about the best configurations on all rows."""
METHODS = "fabolas,ei,es,mtbo,hyperband,random"
WITHIN = (2.0, 1.0, 0.5, 0.25)
"""Percentage points from the grid's best."""
EVALUATIONS = {"fabolas": 110, "mtbo": 60, "ei": 40, "es": 40}
MOST = 60.0
"""Full evaluations after which every run ends."""


def run(grid: Grid, contestant: Contestant, scale: float, seed: int) -> dict[str, Any]:
    """Run one method on a grid once."""
    number = zlib.crc32(f"{grid.space.name}{seed}".encode())
    subsets = {"fidelity": "subset"} if contestant.method in {"hyperband", "halving"} else {}
    options = {**subsets, **contestant.options}
    optimizer = make_optimizer(contestant.method, grid.space, number, grid.objective, options)

    def outcome(query: Query) -> tuple[float, float]:
        error, seconds = grid.outcome(query)
        return error, scale * seconds

    n, seconds = EVALUATIONS.get(contestant.method, 100_000), MOST * scale * grid.full_cost
    curve = watched(optimizer, outcome, grid.full_error, evaluations=n, seconds=seconds)
    return {"curve": asdict(curve)}


def report(grid: Grid, text: str, curves: list[Curve], unit: float) -> float:
    """Print the costs of a method, and return the median cost to come within 0.5 of the best."""
    costs = {w: [c.lasting(grid.best + w) / unit for c in curves] for w in WITHIN}
    last = [100.0 if c.worths[-1] is None else c.worths[-1] for c in curves]
    within = ", ".join(f"{w:g} {np.median(x):.2f}" for w, x in costs.items())
    n, ends = (np.median(x) for x in ([len(c.ends) for c in curves], [c.ends[-1] for c in curves]))
    full = np.mean(np.concatenate([c.shares for c in curves]) > 0.5)
    ask = np.median(np.concatenate([c.asks for c in curves]))
    print(
        f"  {text}: to within {within}; at the end {np.median(last):.2f} % (worst {max(last):.2f} "
        f"%) after {ends / unit:.1f} in {n:.0f} evaluations, {full:.0%} full; ask {ask:.3f} s"
    )
    print(f"    to 0.5, each seed: {' '.join(f'{x:.2f}' for x in costs[0.5])}", flush=True)
    return float(np.median(costs[0.5]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--table", default=TABLES)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--scales", default="100,1")
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    print(describe())
    runs, goals = KeptRows(options.folder / "svm_runs.jsonl", "key"), Goals()
    for name in options.table.split(","):
        grid = Grid(name)
        for scale in map(float, options.scales.split(",")):
            unit, medians = scale * grid.full_cost, {}
            print(f"{name}, best {grid.best:.2f} %, a full evaluation {unit:.1f} s (x{scale:g})")
            for contestant in named(options.methods):
                key = {"table": name, "method": contestant.text, "scale": scale}
                curves = []
                for seed in range(options.seeds):
                    make = partial(run, grid, contestant, scale, seed)
                    row = runs.get_or_make({"key": {**key, "seed": seed}}, make)
                    curves.append(Curve(**row["curve"]))
                medians[contestant.text] = report(grid, contestant.text, curves, unit)
            for other, factor in (("ei", 15), ("hyperband", 3)):
                if {"fabolas", other} <= medians.keys():
                    what = f"{name}, x{scale:g}: cost of {other} / of fabolas"
                    goals.at_least(what, medians[other] / medians["fabolas"], factor)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
