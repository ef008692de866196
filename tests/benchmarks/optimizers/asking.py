"""Seconds of processor time that methods take to ask, in one thread.

    tests/benchmarks/run optimizers/asking [admm esmbo fabolas] [--seeds 3] [--told 100,200]
        [--methods fabolas:variant=paper,fabolas,ei,es,mtbo]

`admm`: 200 trials of the artificial objective on the small space.
`esmbo`: six hyperparameters of one model; after 100 random trials each method goes on by itself.
ESMBO learns the risks in 25 bootstraps; it stands beside itself with one history, and beside JOPT.
Asks with 140 to 160 trials told count, those with a fit apart from those without.
`fabolas`: ten hyperparameters of one model; the methods ask for what they like and are told at
once. Medians of the eleven asks around so many results, verifications, which search nothing,
included.
"""

import argparse
import math
import warnings
from collections.abc import Callable, Mapping
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from anytime import named
from loss_worlds import A3, ArtificialLoss, artificial_space
from machine import Goals, describe
from subset_worlds import cube
from threadpoolctl import threadpool_limits
from worlds import evaluation

from prefect_tune.optimizers import (
    Admm,
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

N_ADMM = 200
N_HISTORIES = 25
N_TOLD, TIMED_FROM, N_TRIALS = 100, 140, 160
MANY = f"esmbo, N = {N_HISTORIES}"
ONE, SINGLE = "esmbo, N = 1", "jopt"
METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    MANY: ("esmbo", {"n_histories": N_HISTORIES}),
    ONE: ("esmbo", {"n_histories": 1}),
    SINGLE: ("jopt", {}),
}
KINDS = ("with a fit", "without a fit")
AROUND = 5
FABOLAS_GOALS = {100: 0.4, 200: 0.8}


def ask(
    optimizer: Optimizer,
    outcome: Callable[[Query], Evaluation],
    asked: list[float],
    n_trials: int | None = None,
) -> None:
    """Ask and tell once, and note the seconds of the ask."""
    number = len(optimizer.history)
    left = None if n_trials is None else n_trials - number
    last = tuple(asked[-10:])
    budget = Budget(number, left, ask_seconds=sum(asked), last_ask_seconds=last)
    started = process_time()
    query = optimizer.ask(budget)
    asked.append(process_time() - started)
    optimizer.tell(Trial(number, query).started().completed(outcome(query)))


def values_of(query: Query) -> list[Any]:
    return [v for _, v in dict(query.configuration.choices)["model"].values]


def admm(_: argparse.Namespace, goals: Goals) -> None:
    optimizer = Admm(artificial_space(A3), 0, Objective("artificial", "", 0.0, 1.0))
    loss_of, asked = ArtificialLoss(A3, 0), list[float]()
    with warnings.catch_warnings(action="ignore"):
        for _ in range(N_ADMM):
            ask(optimizer, lambda query: evaluation(loss_of(query)), asked, N_ADMM)
    goals.at_most(f"median ask of admm over {N_ADMM} trials, s", median(asked), 0.06)


def with_risks(query: Query, n: int) -> Evaluation:
    """A bowl, in percent; each bootstrap has another middle, and its own errors."""
    x = np.array(values_of(query))
    rng = np.random.default_rng(int(1e9 * x.sum()))
    middles = 0.4 + np.random.default_rng(0).normal(0, 0.05, (n, len(x)))
    risks = 5 + 40 * ((x - middles) ** 2).mean(axis=1) + rng.normal(0, 0.5, n)
    return Evaluation(float(5 + 40 * np.mean((x - 0.4) ** 2)), risks=tuple(map(float, risks)))


def begun(name: str, seed: int) -> tuple[Optimizer, Callable[[Query], Evaluation]]:
    """A method that was told random trials, and the outcome of its queries."""
    method, options = METHODS[name]
    optimizer = make_optimizer(method, cube(6), seed, Objective(n_held_out=1_000), dict(options))
    events, rng = list[Event](), np.random.default_rng(seed)
    n_risks = getattr(optimizer.bootstraps, "n", 0)
    for number in range(N_TOLD):
        query = Query(sample_configuration(optimizer.space, rng))
        told = Trial(number, query).started().completed(with_risks(query, n_risks))
        events += [Asked(number, query, Budget()), Told(told)]
    replay(optimizer, events)
    return optimizer, lambda query: with_risks(query, n_risks)


def esmbo(given: argparse.Namespace, goals: Goals) -> None:
    times = {(name, kind): list[float]() for name in METHODS for kind in KINDS}
    for seed in range(given.seeds):
        optimizers = {name: begun(name, seed) for name in METHODS}
        for number in range(N_TOLD, N_TRIALS):
            for name, (optimizer, outcome) in optimizers.items():
                before, asked = (optimizer.memo or {}).get("fitted"), list[float]()
                ask(optimizer, outcome, asked)
                kind = KINDS[(optimizer.memo or {})["fitted"] == before]
                times[name, kind] += asked if number >= TIMED_FROM else []
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


def on_subset(query: Query, rng: np.random.Generator) -> Evaluation:
    """A bowl over the first five dimensions, and a learning curve; percent, and seconds."""
    values = values_of(query)
    bowl = float(np.sum((np.array(values[:5]) - 0.4) ** 2))
    loss = (4 + 20 * bowl) * query.subset**-0.2 * math.exp(rng.normal(0, 0.03))
    return evaluation(loss, 100 * query.subset**1.7 * math.exp(values[0]))


def fabolas(given: argparse.Namespace, goals: Goals) -> None:
    objective = Objective(n_rows=12_800, n_held_out=2_000, n_classes=2, n_rarest=6_000, n_folds=1)
    counts = [int(n) for n in given.told.split(",")]
    for contestant in named(given.methods):
        rng, asked = np.random.default_rng(0), list[float]()
        optimizer = make_optimizer(contestant.method, cube(10), 0, objective, contestant.options)
        for _ in range(max(counts) + AROUND + 1):
            ask(optimizer, lambda query, rng=rng: on_subset(query, rng), asked)
        for n in counts:
            near = asked[n - AROUND : n + AROUND + 1]
            what = f"{contestant.text}, median seconds of an ask around {n} results"
            print(f"{what}: {median(near):.3f} ({' '.join(f'{t:.2f}' for t in near)})", flush=True)
            if contestant.method == "fabolas" and n in FABOLAS_GOALS:
                goals.at_most(what, median(near), FABOLAS_GOALS[n])


PARTS = {"admm": admm, "esmbo": esmbo, "fabolas": fabolas}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--told", default="100,200")
    parser.add_argument("--methods", default="fabolas:variant=paper,fabolas,ei,es,mtbo")
    given, goals = parser.parse_args(), Goals()
    print(describe())
    for part in given.parts:
        PARTS[part](given, goals)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
