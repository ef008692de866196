"""Seconds that BAPI takes to ask, by the points that it learns from, and to decide who goes on.

    tests/benchmarks/run optimizers/bapi_asking [--points 100,140] [--methods bapi,...]
        [--seeds 4]

Ten hyperparameters of one model that trains in 50 epochs; the method asks for what it likes and is
told power laws at once. Asks are told apart by what they leave in the memo: one that plans with its
fit, one that plans with the parameters of an earlier fit, and one that lets the last training go on
without a plan. A training that is stopped is decided on in an ask that plans. Seconds of processor
time in one thread, medians of the asks with about so many points.
"""

import argparse
from dataclasses import dataclass
from statistics import median
from time import process_time

import numpy as np
from anytime import Contestant, named
from ConfigSpace import ConfigurationSpace, Float
from curve_replay import evaluation_of
from machine import Goals, describe
from threadpoolctl import threadpool_limits

from prefect_tune.optimizers import (
    Algorithm,
    Budget,
    Evaluation,
    Objective,
    Query,
    Space,
    SpaceExhausted,
    Step,
    make_optimizer,
)

N_DIMENSIONS, EPOCHS, AROUND = 10, 50, 10
OBJECTIVE = Objective(n_folds=1, n_held_out=1_000, epochs=EPOCHS, iterative=frozenset({"model"}))
BUDGET = 4_000.0
"""Seconds; a full training takes 50 to 370."""
MOST_ASKS = 160
KINDS = ("plan with its fit", "plan without a fit", "decision to go on")
GOALS = {KINDS[0]: 0.25, KINDS[2]: 0.03}
AT_GOAL = 100


@dataclass(frozen=True)
class Asked:
    """An ask: which kind, from how many points at the last fit, and its seconds."""

    kind: str
    n_points: int
    seconds: float


def space() -> Space:
    """One model with ten hyperparameters in [0, 1]."""
    names = [f"x{i}" for i in range(N_DIMENSIONS)]
    cube = ConfigurationSpace(space=[Float(n, (0.0, 1.0), default=0.5) for n in names])
    model = Algorithm(id="model", estimator="x.Model", hyperparameters=cube)
    return Space("cube", (Step("model", (model,)),))


def outcome(query: Query, done: int, rng: np.random.Generator) -> Evaluation:
    """Power laws to a bowl over five dimensions, in percent, at a rate of the sixth."""
    x = np.array([v for _, v in dict(query.configuration.choices)["model"].values])
    floor = 4 + 20 * float(np.sum((x[:5] - 0.4) ** 2))
    t = np.arange(1, (query.epochs or EPOCHS) + 1) / EPOCHS
    losses = floor + (90 - floor) * (1 + np.exp(4 * x[5]) * t) ** -1.2
    curve = tuple(float(y) for y in losses + rng.normal(0, 0.3, len(t)))
    seconds = float(np.exp(2 * x[6])) * (len(t) - done)
    return evaluation_of(curve, seconds, done)


def asks(contestant: Contestant, seed: int) -> list[Asked]:
    """All asks of a study that plan, or let a training go on."""
    rng = np.random.default_rng(seed)
    optimizer = make_optimizer(contestant.method, space(), seed, OBJECTIVE, contestant.options)
    found: list[Asked] = []
    spent, done = 0.0, dict[object, int]()
    while spent < BUDGET and len(optimizer.history) < MOST_ASKS:
        before = dict(optimizer.memo or {})
        number = len(optimizer.history)
        budget = Budget(number, None, spent, BUDGET - spent)
        started = process_time()
        try:
            query = optimizer.ask(budget)
        except SpaceExhausted:
            break
        seconds = process_time() - started
        if (kind := _kind(before, dict(optimizer.memo or {}))) is not None:
            found.append(Asked(kind, (optimizer.memo or {})["n_fitted"], seconds))
        told = outcome(query, done.get(query.configuration, 0), rng)
        done[query.configuration] = len(told.curve)
        spent += told.cost_seconds
        optimizer.tell(optimizer.history[number].started().ended(told))
    return found


def _kind(before: dict[str, int], after: dict[str, int]) -> str | None:
    """Which kind of ask left a memo; None in the start."""
    if after.get("n_plans", 0) == 0:
        return None
    if after["n_plans"] == before.get("n_plans", 0):
        return KINDS[2]
    return KINDS[1] if after["n_fits"] == before.get("n_fits", 0) else KINDS[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", default="100,140")
    parser.add_argument("--methods", default="bapi")
    parser.add_argument("--seeds", type=int, default=4)
    options = parser.parse_args()
    print(describe())
    goals = Goals()
    for contestant in named(options.methods):
        found = [ask for seed in range(options.seeds) for ask in asks(contestant, seed)]
        print(f"{contestant.text}: {len(found)} asks of {options.seeds} studies; {describe()}")
        for n in map(int, options.points.split(",")):
            near = [ask for ask in found if abs(ask.n_points - n) <= AROUND]
            for kind in KINDS:
                times = [ask.seconds for ask in near if ask.kind == kind]
                if not times:
                    print(f"  {kind}, {n} points: none")
                    continue
                what = f"  {kind}, {n} points, median seconds of {len(times)} asks"
                if n == AT_GOAL and kind in GOALS and contestant.text == "bapi":
                    goals.at_most(what.strip(), median(times), GOALS[kind])
                print(f"{what}: {median(times):.3f} (most {max(times):.3f})", flush=True)
    print(describe())
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
