"""How often a method finds a value that all paths share and that suits one kind of model only.

    tests/benchmarks/run optimizers/shared_values [admm]

One of four aggregations of events lowers the loss with linear models or with trees, and raises it
with all others; that kind of model is worse with any other aggregation.
"""

from argparse import ArgumentParser

from machine import Goals, describe
from shared_worlds import FAMILIES, KINDS, has_found
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import Admm, Flash

METHODS = {"flash": (Flash, 40, 10), "admm": (Admm, 60, 6)}
"""Methods with trials and seeds."""
SHARE = 0.9
"""Least share of runs that is to find the value, of each family and kind of model."""


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("method", choices=METHODS, default="flash", nargs="?")
    method, n_trials, n_seeds = METHODS[parser.parse_args().method]
    print(describe())
    goals = Goals()
    for kind in KINDS:
        for family in FAMILIES:
            found = sum(has_found(method, family, kind, seed, n_trials) for seed in range(n_seeds))
            goals.at_least(f"{family} with {kind}, of {n_seeds} runs", found, SHARE * n_seeds)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
