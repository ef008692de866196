"""How often a method finds a value that all paths share and that suits one kind of model only.

    tests/benchmarks/run optimizers/shared_values [--method admm] [--trials 40] [--seeds 10]

One of four aggregations of events lowers the loss with linear models or with trees, and raises it
with all others; that kind of model is worse with any other aggregation.
"""

from argparse import ArgumentParser

from machine import Goals, describe
from shared_worlds import FAMILIES, KINDS, has_found
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import Admm, Flash

METHODS = {"flash": Flash, "admm": Admm}
SHARE = 0.9
"""Least share of runs that is to find the value, of each family and kind of model."""


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("--method", choices=METHODS, default="flash")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    print(describe())
    goals = Goals()
    for kind in KINDS:
        for family in FAMILIES:
            method, seeds = METHODS[given.method], range(given.seeds)
            found = sum(has_found(method, family, kind, seed, given.trials) for seed in seeds)
            goals.at_least(f"{family} with {kind}, of {given.seeds}", found, SHARE * given.seeds)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
