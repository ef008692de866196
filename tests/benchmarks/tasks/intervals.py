"""How long the AUROC takes with its interval from bootstraps over patients.

    tests/benchmarks/run tasks/intervals [--rows 10000 100000 1000000]

CPU seconds of one thread; two rows a patient, a tenth of them positive. The goal is one second at
10,000 rows.
"""

import argparse
from time import process_time

import numpy as np
from machine import Goals, describe

from prefect_tune.tasks.objective.two_classes import auroc_with_interval
from prefect_tune.tasks.threads import one_thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    asked, goals = parser.parse_args(), Goals()
    print(describe())
    for m in asked.rows:
        rng = np.random.default_rng(0)
        y = rng.random(m) < 0.1
        score = y + rng.normal(size=m)
        with one_thread():
            started = process_time()
            found = auroc_with_interval(y, score, np.arange(m) // 2, seed=0)
            seconds = process_time() - started
        assert found is not None
        print(f"{m:>9,} rows: {seconds:.2f} s, {found.n_draws:,} bootstraps")
        if m == 10_000:
            goals.at_most("seconds at 10,000 rows", seconds, 1.0)
    goals.end()


if __name__ == "__main__":
    main()
