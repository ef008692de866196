"""Hostile input at random: no traceback, no password shown, no half-written study.

    tests/benchmarks/run deployments/fuzzed [--cases 5000] [--seed 0]

Parameters of the flow, damaged data files, command lines, and stores whose files and rows are
damaged, each up to the point where a flow would start. Says how many cases of each kind were
accepted and refused; ends with 1 at the first fault, with the smallest case that shows it.
"""

import argparse
import logging
import os
import sys
import traceback
import warnings
from collections import Counter
from time import perf_counter
from typing import Any

os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")

from fuzzing.ground import Ground
from fuzzing.kinds import KINDS, Kind
from hypothesis import HealthCheck, Phase, given, seed, settings
from machine import describe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(describe(), flush=True)
    logging.disable(logging.WARNING)
    warnings.simplefilter("error")  # one on the screen is as unexpected as a traceback
    for of_others in ("prefect", "pydantic"):
        warnings.filterwarnings("ignore", category=DeprecationWarning, module=of_others)
    with Ground.entered() as ground:
        for kind in KINDS:
            try_out(kind, ground, round(options.cases * kind.share), options.seed)
    print(describe())


def try_out(kind: Kind, ground: Ground, n_cases: int, number: int) -> None:
    """Try cases of a kind, and say how they went; exit with 1 at the first fault."""
    counted: Counter[bool] = Counter()

    @seed(number)
    @settings(
        max_examples=n_cases,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(kind.cases)
    def tried(case: Any) -> None:
        counted[kind.check(ground, case)] += 1

    started = perf_counter()
    try:
        tried()
    except Exception as error:
        traceback.print_exception(error)
        sys.exit(f"{kind.name}: a fault after {counted.total()} cases without one")
    seconds = perf_counter() - started
    print(
        f"{kind.name}: {counted.total()} cases, {counted[True]} accepted, {counted[False]} refused,"
        f" {seconds:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    main()
