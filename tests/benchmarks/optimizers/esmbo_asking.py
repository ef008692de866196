"""Seconds that ESMBO takes to ask for the next model, beside one Gaussian process alone.

    tests/benchmarks/run optimizers/esmbo_asking [--seeds 3]

Six hyperparameters of one model; 100 random trials are told, then each method goes on by itself.
ESMBO learns the risks in 25 bootstraps; it stands beside itself with one history, and beside JOPT.
Asks with 140 to 160 trials told count, those with a fit apart from those with the parameters of an
earlier fit. Seconds of processor time in one thread, in turn; medians.
"""

import argparse
from collections.abc import Mapping
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from machine import Goals, describe
from subset_worlds.problems import cube
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import (
    Asked,
    Budget,
    Evaluation,
    Event,
    Objective,
    Optimizer,
    Query,
    Told,
    Trial,
    make_optimizer,
    replay,
)
from prefect_tune.optimizers.space.sampling import sample_configuration

N_DIMENSIONS, N_HISTORIES = 6, 25
N_TOLD, TIMED_FROM, N_TRIALS = 100, 140, 160
MANY = f"esmbo, N = {N_HISTORIES}"
ONE, SINGLE = "esmbo, N = 1", "jopt"
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    MANY: ("esmbo", {"n_histories": N_HISTORIES}),
    ONE: ("esmbo", {"n_histories": 1}),
    SINGLE: ("jopt", {}),
}
KINDS = ("with a fit", "without a fit")


def outcome(query: Query, n_risks: int) -> Evaluation:
    """A bowl, in percent; each bootstrap has another middle, and its own errors."""
    x = np.array([v for _, v in dict(query.configuration.choices)["model"].values])
    rng = np.random.default_rng(int(1e9 * x.sum()))
    middles = 0.4 + np.random.default_rng(0).normal(0, 0.05, (n_risks, N_DIMENSIONS))
    risks = 5 + 40 * ((x - middles) ** 2).mean(axis=1) + rng.normal(0, 0.5, n_risks)
    return Evaluation(float(5 + 40 * np.mean((x - 0.4) ** 2)), risks=tuple(map(float, risks)))


def begun(name: str, seed: int) -> Optimizer:
    """A method that was told random trials."""
    method, options = METHODS[name]
    optimizer = make_optimizer(
        method, cube(N_DIMENSIONS), seed, Objective(n_held_out=1_000), dict(options)
    )
    events, rng = list[Event](), np.random.default_rng(seed)
    for number in range(N_TOLD):
        query = Query(sample_configuration(optimizer.space, rng))
        told = Trial(number, query).started().completed(outcome(query, n_risks(optimizer)))
        events += [Asked(number, query, Budget()), Told(told)]
    replay(optimizer, events)
    return optimizer


def n_risks(optimizer: Optimizer) -> int:
    return 0 if optimizer.bootstraps is None else optimizer.bootstraps.n


def ask(optimizer: Optimizer) -> tuple[str, float]:
    """Ask and tell once; whether the process was fitted, and the seconds of the ask."""
    number, before = len(optimizer.history), (optimizer.memo or {}).get("fitted")
    started = process_time()
    query = optimizer.ask(Budget(number, None))
    seconds = process_time() - started
    told = outcome(query, n_risks(optimizer))
    optimizer.tell(optimizer.history[number].started().completed(told))
    return KINDS[(optimizer.memo or {})["fitted"] == before], seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    print(describe())
    times = {(name, kind): list[float]() for name in METHODS for kind in KINDS}
    for seed in range(chosen.seeds):
        optimizers = {name: begun(name, seed) for name in METHODS}
        for number in range(N_TOLD, N_TRIALS):
            for name, optimizer in optimizers.items():
                kind, seconds = ask(optimizer)
                if number >= TIMED_FROM:
                    times[name, kind].append(seconds)
    goals = Goals()
    for kind in KINDS:
        print(f"asks {kind}, median milliseconds")
        for name in METHODS:
            taken = times[name, kind]
            most = f"most {1000 * max(taken):.0f} of {len(taken)}"
            print(f"  {name:<14} {1000 * median(taken):7.1f} ({most})")
        many = median(times[MANY, kind])
        goals.at_most(f"seconds {kind}", many, 1)
        for other in (ONE, SINGLE):
            goals.at_most(f"times {other}, {kind}", many / median(times[other, kind]), 3)
    for other in (ONE, SINGLE):
        every = [median(times[name, KINDS[0]] + times[name, KINDS[1]]) for name in (MANY, other)]
        goals.at_most(f"times {other}, all asks", every[0] / every[1], 3)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
