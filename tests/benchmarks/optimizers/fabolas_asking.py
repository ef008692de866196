"""What Fabolas takes to ask, by the number of results: its time is part of what it optimises.

    tests/benchmarks/run optimizers/fabolas_asking [--told 100,200]
        [--methods fabolas:inference=ensemble,fabolas,ei,es,mtbo]

Ten hyperparameters of one model; the methods ask for what they like and are told at once. Seconds
of processor time in one thread: medians of the eleven asks around so many results, verifications,
which search nothing, included.
"""

import argparse
import math
from statistics import median
from time import process_time

import numpy as np
from anytime import Contestant, named
from machine import Goals, describe
from subset_worlds.problems import cube
from threadpoolctl import threadpool_limits
from worlds import evaluation

from prefect_tune.optimizers import (
    Budget,
    Objective,
    Query,
    Trial,
    make_optimizer,
)

N_DIMENSIONS, AROUND = 10, 5
OBJECTIVE = Objective(n_rows=12_800, n_held_out=2_000, n_classes=2, n_rarest=6_000, n_folds=1)
GOALS = {100: 0.4, 200: 0.8}


def told(number: int, query: Query, rng: np.random.Generator) -> Trial:
    """A bowl over the first five dimensions, and a learning curve; percent, and seconds."""
    values = [v for _, v in dict(query.configuration.choices)["model"].values]
    bowl = float(np.sum((np.array(values[:5]) - 0.4) ** 2))
    loss = (4 + 20 * bowl) * query.subset**-0.2 * math.exp(rng.normal(0, 0.03))
    seconds = 100 * query.subset**1.7 * math.exp(values[0])
    return Trial(number, query).started().ended(evaluation(loss, seconds))


def seconds_to_ask(contestant: Contestant, n_most: int) -> list[float]:
    """Seconds of each ask, up to some after so many results."""
    rng = np.random.default_rng(0)
    space = cube(N_DIMENSIONS)
    optimizer = make_optimizer(contestant.method, space, 0, OBJECTIVE, contestant.options)
    times: list[float] = []
    for number in range(n_most + AROUND + 1):
        last = tuple(times[-10:])
        budget = Budget(trials_spent=number, ask_seconds=sum(times), last_ask_seconds=last)
        started = process_time()
        query = optimizer.ask(budget)
        times.append(process_time() - started)
        optimizer.tell(told(number, query, rng))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--told", default="100,200")
    parser.add_argument("--methods", default="fabolas:inference=ensemble,fabolas,ei,es,mtbo")
    options = parser.parse_args()
    print(describe())
    goals = Goals()
    counts = [int(n) for n in options.told.split(",")]
    for contestant in named(options.methods):
        times = seconds_to_ask(contestant, max(counts))
        for n in counts:
            near = times[n - AROUND : n + AROUND + 1]
            what = f"{contestant.text}, median seconds of an ask around {n} results"
            print(f"{what}: {median(near):.3f} ({' '.join(f'{t:.2f}' for t in near)})", flush=True)
            if contestant.method == "fabolas" and n in GOALS:
                goals.at_most(what, median(near), GOALS[n])
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
