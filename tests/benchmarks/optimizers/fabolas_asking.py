"""What Fabolas takes to ask, by the number of results: its time is part of what it optimises.

    tests/benchmarks/run optimizers/fabolas_asking [--told 100,200] [--methods fabolas,ei,es,mtbo]

Ten hyperparameters of one model, eight samples of the model's own parameters (where the method says
`n_samples`, its default), results over all sizes of subset, most of them small. After the results
are replayed, nine rounds of ask and tell; the median is of those after the first, whose sampler
has its start to find, and which is printed beside it. Seconds of processor time in one thread.
"""

import argparse
import math
from statistics import median
from time import process_time

import numpy as np
from anytime import Contestant, named
from ConfigSpace import ConfigurationSpace, Float
from machine import Goals, describe
from threadpoolctl import threadpool_limits
from worlds import evaluation

from prefect_tune.optimizers import (
    Algorithm,
    Asked,
    Budget,
    Objective,
    Query,
    Space,
    Step,
    Told,
    Trial,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.space.sampling import sample_configuration

N_DIMENSIONS, ROUNDS = 10, 9
OBJECTIVE = Objective(n_rows=12_800, n_held_out=2_000, n_classes=2, n_rarest=6_000, n_folds=1)
SHARES = tuple(2.0**-k for k in range(7))
GOALS = {100: 0.4, 200: 0.8}
FULL_ONLY = {"ei", "es"}


def space_of(n_dimensions: int) -> Space:
    """One model with so many hyperparameters in [0, 1]."""
    names = [f"x{i}" for i in range(n_dimensions)]
    cube = ConfigurationSpace(space=[Float(n, (0.0, 1.0), default=0.5) for n in names])
    model = Algorithm(id="model", estimator="x.Model", hyperparameters=cube)
    return Space("cube", (Step("model", (model,)),))


def told(number: int, query: Query, rng: np.random.Generator) -> Told:
    """A bowl over the first five dimensions, and a learning curve; percent, and seconds."""
    values = [v for _, v in dict(query.configuration.choices)["model"].values]
    bowl = float(np.sum((np.array(values[:5]) - 0.4) ** 2))
    loss = (4 + 20 * bowl) * query.subset**-0.2 * math.exp(rng.normal(0, 0.03))
    seconds = 100 * query.subset**1.7 * math.exp(values[0])
    return Told(Trial(number, query).started().ended(evaluation(loss, seconds)))


def seconds_to_ask(contestant: Contestant, n_told: int) -> list[float]:
    """Seconds of nine asks after so many results."""
    space = space_of(N_DIMENSIONS)
    rng = np.random.default_rng(n_told)
    shares = (1.0,) if contestant.method in FULL_ONLY else SHARES
    if contestant.method == "mtbo":
        shares = (1.0, 0.25)
    weights = np.arange(1.0, len(shares) + 1)
    events: list[Asked | Told] = []
    for number in range(n_told):
        share = float(rng.choice(shares, p=weights / weights.sum()))
        query = Query(sample_configuration(space, rng), subset=share)
        events += [Asked(number, query, Budget()), told(number, query, rng)]
    optimizer = make_optimizer(contestant.method, space, 0, OBJECTIVE, contestant.options)
    replay(optimizer, events)
    times: list[float] = []
    for number in range(n_told, n_told + ROUNDS):
        budget = Budget(trials_spent=number, last_ask_seconds=tuple(times[-10:]))
        started = process_time()
        query = optimizer.ask(budget)
        times.append(process_time() - started)
        optimizer.tell(told(number, query, rng).trial)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--told", default="100,200")
    parser.add_argument("--methods", default="fabolas,ei,es,mtbo")
    options = parser.parse_args()
    print(describe())
    goals = Goals()
    for contestant in named(options.methods):
        for n_told in map(int, options.told.split(",")):
            first, *times = seconds_to_ask(contestant, n_told)
            each = " ".join(f"{t:.2f}" for t in times)
            what = f"{contestant.text}, seconds of an ask after {n_told} results"
            print(f"{what}: first {first:.2f}, then {each}")
            if contestant.text == "fabolas" and n_told in GOALS:
                goals.at_most(f"{what}, median", median(times), GOALS[n_told])
            else:
                print(f"  median {median(times):.3f}")
    print(describe())
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
