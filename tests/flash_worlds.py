"""Spaces of counted algorithms with planted losses, on which FLASH's numbers were worked out."""

from collections.abc import Callable, Iterable, Mapping
from itertools import product

import numpy as np
from ConfigSpace import Float
from worlds import algorithm, told

from prefect_tune.optimizers import (
    Algorithm,
    Budget,
    Evaluation,
    Flash,
    History,
    Query,
    Space,
    Step,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.space.configuration import default_configuration

__all__ = [
    "BENCHMARK",
    "FIRST_THIRTY",
    "TOY",
    "additive_log_seconds",
    "additive_losses",
    "counted_space",
    "defaults_of",
    "one_hot_paths",
    "planted_loss",
    "run_one_by_one",
    "run_steps",
    "steps_of",
]

TOY = (2, 3)
BENCHMARK = (4, 2, 13, 14)
"""Algorithms per step of the paper's benchmark: 1,456 paths."""
FIRST_THIRTY = [
    *(0, 561, 758, 1319, 242, 439, 1000, 1197, 120, 681, 878, 1439, 362, 461, 993),
    *(1115, 1219, 781, 885, 426, 536, 918, 1034, 966, 1013, 402, 474, 16, 17, 1),
]
"""D-optimal picks on it from path 0, ties to the lowest index."""


def one_hot_paths(counts: tuple[int, ...]) -> np.ndarray:
    """All paths, the first step most significant."""
    blocks = [np.eye(n) for n in counts]
    return np.array([np.concatenate(rows) for rows in product(*blocks)])


def additive_losses() -> np.ndarray:
    """Loss of each benchmark path, a sum of weights of its algorithms."""
    return 20 + one_hot_paths(BENCHMARK) @ np.array([((7 * c) % 33) / 4 for c in range(33)])


def additive_log_seconds() -> np.ndarray:
    """Log seconds of each benchmark path, a sum as well."""
    return 1 + one_hot_paths(BENCHMARK) @ np.array([((5 * c) % 33) / 20 for c in range(33)])


def planted_loss(counts: tuple[int, ...], seed: int) -> Callable[[Query], float | None]:
    """Percent: 10 + a weight per algorithm + a parabola per hyperparameter; some paths fail.

    The parabolas have their least within (0.2, 0.8), so defaults of 0.5 are fair and not best.
    """
    rng = np.random.default_rng([seed, *counts])
    weights = [np.abs(rng.normal(0, 8, n)) for n in counts]
    best = [rng.uniform(0.2, 0.8, n) for n in counts]
    scales = [rng.exponential(30, n) for n in counts]
    failing = {(int(rng.integers(counts[0])), int(rng.integers(counts[1])))}

    def loss(query: Query) -> float | None:
        total = 10.0
        chosen = []
        for k, (_, choice) in enumerate(query.configuration.choices):
            j = int(choice.algorithm[1:])
            chosen.append(j)
            total += weights[k][j] - weights[k].min()
            total += sum(scales[k][j] * (float(v) - best[k][j]) ** 2 for _, v in choice.values)
        return None if tuple(chosen[:2]) in failing else min(total, 100.0)

    return loss


def counted_space(counts: tuple[int, ...], n_hyperparameters: int = 1) -> Space:
    """A space of so many algorithms per step, each with so many numbers in [0, 1]."""

    def of(j: int) -> Algorithm:
        numbers = (Float(f"h{i}", (0.0, 1.0), default=0.5) for i in range(n_hyperparameters))
        return algorithm(f"a{j}", *numbers, estimator="x.Y")

    steps = (Step(f"step{k}", tuple(map(of, range(n)))) for k, n in enumerate(counts))
    return Space("counted", tuple(steps))


def steps_of(query: Query, seen: set[str], seconds: Mapping[str, float]) -> Evaluation:
    """An evaluation with one fold, its steps served from a cache that never evicts."""
    costs, key = [], ""
    for step, choice in query.configuration.choices:
        key += f"/{choice.to_json()}"
        hit = key in seen
        seen.add(key)
        took = seconds.get(f"{step}.{choice.algorithm}", 0.1)
        costs.append(StepCost(step, 0, took, 0.01 if hit else 0.0, hit, key))
    spent = sum(c.load_seconds + (0.0 if c.hit else c.seconds) for c in costs)
    total = sum(c.seconds for c in costs)
    return Evaluation(20.0, (20.0,), spent, total, tuple(costs))


def run_steps(
    queries: Iterable[Query], seconds: Mapping[str, float], *, is_cached: bool = True
) -> History:
    """A history of these queries in turn, by the seconds that steps take."""
    history, seen = History(), set[str]()
    for number, query in enumerate(queries):
        outcome = steps_of(query, seen if is_cached else set(), seconds)
        history.record(Trial(number, query).started().completed(outcome))
    return history


def defaults_of(space: Space, *numbers: int) -> list[Query]:
    """The defaults of the paths of these numbers; of all paths if there are none."""
    paths = list(space.paths())
    return [Query(default_configuration(space, paths[i])) for i in numbers or range(len(paths))]


def run_one_by_one(optimizer: Flash, n: int, budget: Budget | None = None) -> list[Query]:
    """Ask and tell one by one; a trial costs one second, and its loss is that of its path."""
    queries = []
    paths = list(optimizer.space.paths())
    for number in range(n):
        left = None if budget is None or budget.trials_left is None else budget.trials_left - number
        seconds = None if budget is None else budget.seconds_left
        query = optimizer.ask(Budget(trials_left=left, seconds_left=seconds))
        loss = float(paths.index(query.configuration.path)) + 1
        optimizer.tell(told(number, query, loss))
        queries.append(query)
    return queries
