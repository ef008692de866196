"""Promotions by chance, and promotions of better models, over ten nights of simulated series.

    tests/benchmarks/run tasks/promotion [--series 200] [--rows 200,1000,5000]

Equal models: the share of series in which any challenger is promoted, which must be at most 5 %.
Better models: challengers are better by two standard errors of the difference every night, on the
rows of the first night; printed are the shares promoted on the first night, and within ten nights.
The test rows are the same ones every night, grow by a fifth of the first ones every night, or are
other rows every night. AUROC takes most of the time and gets a tenth of the series.

No test of one night can have both 5 % false promotions and 80 % correct ones at two standard
errors: by the lemma of Neyman and Pearson, the most powerful one finds 64 % at a level of 5 %. The
goal of 80 % is therefore for ten nights, and needs rows that differ between the nights.
"""

import argparse
from collections.abc import Sequence

import numpy as np
from machine import describe
from promotion_worlds import (
    NIGHTS,
    WORLDS,
    TestRows,
    World,
    gain_of_standard_errors,
    night_of_promotion,
    share_with_error,
)
from scipy.stats import norm

ROWS: tuple[TestRows, ...] = ("same", "growing", "new")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--series", type=int, default=200)
    parser.add_argument("--rows", default="200,1000,5000")
    chosen = parser.parse_args(arguments)
    print(describe())
    bound = norm.sf(norm.isf(0.05) - 2)
    print(f"one night, level 5 %, two standard errors: at most {bound:.0%} by Neyman and Pearson")
    print(f"{'world':30} {'rows':>5} {'test rows':9} {'false':>14} {'first':>7} {'in ten':>7}")
    pooled: list[bool] = []
    for world in WORLDS:
        for n in map(int, chosen.rows.split(",")):
            n_series = chosen.series // (10 if world.metric == "auroc" else 1)
            for test_rows in ROWS:
                pooled += _report(world, n, test_rows, n_series)
    share, error = share_with_error(pooled)
    print(f"false promotions in all {len(pooled)} series: {share:.2%} +- {error:.2%}")


def _report(world: World, n: int, test_rows: TestRows, n_series: int) -> list[bool]:
    rng = np.random.default_rng(n)
    false = [night_of_promotion(world, n, test_rows, 0.0, rng) > 0 for _ in range(n_series)]
    share, error = share_with_error(false)
    gain = gain_of_standard_errors(world, n)
    powers = f"{'two standard errors cannot be reached':>15}"
    if gain < 0.99:
        nights = [night_of_promotion(world, n, test_rows, gain, rng) for _ in range(n_series)]
        first, ever = (np.mean([0 < night <= k for night in nights]) for k in (1, NIGHTS))
        powers = f"{first:7.1%} {ever:7.1%}"
    print(f"{world.name:30} {n:5} {test_rows:9} {share:6.2%} +- {error:5.2%} {powers}", flush=True)
    return false


if __name__ == "__main__":
    main()
