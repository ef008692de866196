"""What ADMM takes to ask over 200 trials, beside scikit-optimize on the same active set.

    tests/benchmarks/run optimizers/admm_asking

The artificial objective on the small space; seconds are processor time of one ask, one thread.
scikit-optimize tunes the path of most hyperparameters (13) alone, told the same points after each
as ADMM's theta-min was: its figure is the median of its asks with 16 to 40 points, ours that of the
theta-min's asks with as many. It is left out when it is not installed
(`uv sync --group benchmark`).
"""

import warnings
from statistics import median
from time import process_time
from typing import Any

from loss_worlds.artificial import A3, ArtificialLoss, artificial_space
from machine import Goals, describe
from threadpoolctl import threadpool_limits
from worlds import told

from prefect_tune.optimizers import Admm, Budget, Objective, Query

UNIT = Objective("artificial", "", 0.0, 1.0)
PATH = {"step0": ["a5"], "step1": ["a1"], "step2": ["a2"]}
FEWEST, MOST, N_SKOPT = 16, 64, 40


def asks(optimizer: Admm, n: int) -> tuple[list[float], list[Query], list[float]]:
    """Seconds of each ask, the queries and their losses."""
    loss_of = ArtificialLoss(A3, 0)
    seconds, queries, losses = [], [], []
    for number in range(n):
        started = process_time()
        query = optimizer.ask(Budget(trials_spent=number, trials_left=n - number))
        seconds.append(process_time() - started)
        queries.append(query)
        losses.append(loss_of(query))
        optimizer.tell(told(number, query, losses[-1]))
    return seconds, queries, losses


def skopt_asks(queries: list[Query], losses: list[float]) -> list[float] | None:
    """Seconds of its asks with the same points told."""
    try:
        import skopt
    except ImportError:
        print("scikit-optimize is not installed; its figure is left out")
        return None

    def point(query: Query) -> list[Any]:
        return [value for _, choice in query.configuration.choices for _, value in choice.values]

    names = [name for _, choice in queries[0].configuration.choices for name, _ in choice.values]
    dimensions = [
        skopt.space.Real(1.0, 10.0) if name.startswith("c") else skopt.space.Integer(1, 10)
        for name in names
    ]
    optimizer = skopt.Optimizer(dimensions, "GP", n_initial_points=4, random_state=0)
    optimizer.tell([point(q) for q in queries[:FEWEST]], losses[:FEWEST])
    seconds = []
    for query, loss in zip(queries[FEWEST:N_SKOPT], losses[FEWEST:N_SKOPT], strict=True):
        # It fits when it is told, as ours does when it is asked.
        started = process_time()
        optimizer.ask()
        optimizer.tell(point(query), loss)
        seconds.append(process_time() - started)
    return seconds


def main() -> None:
    print(describe())
    warnings.simplefilter("ignore")
    space = artificial_space(A3)
    goals = Goals()
    seconds, _, _ = asks(Admm(space, 0, UNIT), 200)
    goals.at_most("median ask over 200 trials, s", median(seconds), 0.06)
    one_path = Admm(space.restricted_to(PATH), 0, UNIT, effort=128)
    seconds, queries, losses = asks(one_path, MOST)
    ours = median(seconds[FEWEST:N_SKOPT])
    print(f"active set of 13: median of asks {FEWEST} to {N_SKOPT} {ours:.3f} s")
    theirs = skopt_asks(queries, losses)
    if theirs is not None:
        goals.at_least("times faster than scikit-optimize", median(theirs) / ours, 5)
    goals.end()


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
