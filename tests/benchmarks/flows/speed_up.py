"""How much sooner one method has what another one ends with, from the curves of comparisons.

    tests/benchmarks/run flows/speed_up CURVES.parquet... [--of admm] [--over jopt]

After table 1 of Liu, Ram et al. 2020, for each data set: the median over the repeats of the best
cross-validated loss, when the one method's median first is as low as where the other's ends, and
when the other's itself first was.
"""

import argparse

import numpy as np
import pandas as pd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("curves", nargs="+")
    parser.add_argument("--of", default="admm")
    parser.add_argument("--over", default="jopt")
    chosen = parser.parse_args()
    print(f"{'data':<20}{chosen.over:>10}{chosen.of:>10}{'reached':>10}{'after':>10}{'times':>10}")
    for path in chosen.curves:
        for data, curves in pd.read_parquet(path).groupby("data"):
            budget = float(curves["budget_seconds"].iloc[0])
            times = np.linspace(0, budget, 1001)
            theirs, ours = (median_curve(curves, m, times) for m in (chosen.over, chosen.of))
            goal = theirs[-1]
            reached, reached_before = (first_at_most(c, goal, times) for c in (theirs, ours))
            print(
                f"{data!s:<20}{goal:>10.4f}{ours[-1]:>10.4f}{reached:>9.1f}s{reached_before:>9.1f}s"
                f"{reached / reached_before:>10.1f}"
            )


def median_curve(curves: pd.DataFrame, method: str, times: np.ndarray) -> np.ndarray:
    """The median over the repeats of the least loss so far, infinite before the first."""
    runs = []
    for _, run in curves[curves["method"] == method].groupby("repeat"):
        told = run.dropna(subset=["incumbent_loss"])
        seconds = told["seconds"].to_numpy(dtype=float)
        losses = np.append(np.inf, told["incumbent_loss"].to_numpy(dtype=float))
        runs.append(losses[np.searchsorted(seconds, times, side="right")])
    return np.median(runs, axis=0)


def first_at_most(curve: np.ndarray, goal: float, times: np.ndarray) -> float:
    reached = np.flatnonzero(curve <= goal)
    return float(times[reached[0]]) if len(reached) else float("inf")


if __name__ == "__main__":
    main()
