"""Problems of numbers in [0, 1] whose losses and seconds depend on the rows.

On the good twin subsets tell what is good on all rows, on the bad one they tell nothing.

Beliefs in them have parameters as given, so that what follows from them is known.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from ConfigSpace import Float
from simulation import Outcome
from worlds import algorithm, told

from prefect_tune.optimizers import (
    Budget,
    Configuration,
    History,
    Objective,
    Optimizer,
    Query,
    Space,
    Step,
    Trial,
)
from prefect_tune.optimizers.methods.fabolas.belief import (
    Belief,
    Learner,
    Observations,
    pipeline_inputs,
)
from prefect_tune.optimizers.methods.fabolas.subsets import COST, RAW_LOSS, Sizes, Strategy
from prefect_tune.optimizers.models.fidelity_kernel import FidelityKernel
from prefect_tune.optimizers.models.kernels import FallingNoise, Noise

BEST = 0.37
"""Where losses are least, in each dimension."""
LEAST_SHARE = 1 / 256
FULL_SECONDS = 1000.0
ROWS = Objective(
    metric="distance",
    unit="",
    lower=-math.inf,
    upper=math.inf,
    n_rows=12_800,
    n_held_out=2_000,
    n_classes=0,
    n_folds=1,
)

Result = tuple[float | tuple[float, ...], float, float | None, float]
"""Position, share of the rows, loss (None of a failure) and seconds."""


def cube(d: int = 1) -> Space:
    """One algorithm with so many numbers in [0, 1]."""
    numbers = (Float(f"x{i}", (0.0, 1.0), default=0.5) for i in range(d))
    return Space("cube", (Step("model", (algorithm("a", *numbers),)),))


def configuration(x: float | tuple[float, ...]) -> Configuration:
    """The configuration at a position."""
    numbers = x if isinstance(x, tuple) else (x,)
    values = {f"x{i}": float(value) for i, value in enumerate(numbers)}
    return Configuration.of(cube(len(numbers)), ("a",), [values])


def position(query: Query) -> tuple[float, ...]:
    """Where a query is."""
    return tuple(float(v) for _, v in dict(query.configuration.choices)["model"].values)


def history_of(*results: Result, pending: Iterable[tuple[float, float]] = ()) -> History:
    """Trials in the order of asking, and those under way by position and share."""
    history = History()
    for x, share, loss, seconds in results:
        query = Query(configuration(x), share)
        history.record(told(len(history), query, loss, seconds))
    for x, share in pending:
        history.record(Trial(len(history), Query(configuration(x), share)))
    return history


@dataclass(frozen=True)
class Twin:
    """A parabola.

    Attributes:
        is_good: Whether subsets tell anything of it.
        seed: Of the noise.
        drop: How often an evaluation on the least rows costs what one on all rows does.
    """

    is_good: bool = True
    seed: int = 0
    drop: float = 60.0

    def __call__(self, query: Query) -> Outcome:
        """Loss and seconds, always the same of a query."""
        s = max(1 + math.log(query.subset) / math.log(1 / LEAST_SHARE), 0.0)
        text = f"{query.configuration.canonical}{query.subset}{query.subset_draw}"
        noise = np.random.default_rng([self.seed, crc32(text.encode())])
        loss = sum((x - BEST) ** 2 for x in position(query)) + noise.normal(0, 0.003)
        if not self.is_good and s < 0.8:
            loss = noise.normal(0.12, 0.1)
        return float(loss + 0.2 * (1 - s) ** 2), FULL_SECONDS * self.drop ** (s - 1)


def ask_and_tell(optimizer: Optimizer, outcome: Any, n: int, **budget: Any) -> list[Query]:
    """Ask and tell one by one."""
    queries = []
    for _ in range(n):
        query = optimizer.ask(Budget(**budget))
        loss, seconds = outcome(query)
        optimizer.tell(told(len(optimizer.history) - 1, query, loss, seconds))
        queries.append(query)
    return queries


DEFAULT = Strategy(
    basis=RAW_LOSS,
    acquisition="gain_per_cost",
    is_log=False,
    is_published=False,
    one_fold_to=1 / 8,
    n_confirmed=3,
)


def seen_of(history: History, objective: Objective = ROWS) -> Observations:
    """Its results, as a method learns from them."""
    d = max((len(position(t.query)) for t in history), default=1)
    return Observations.of(history, Sizes.of(objective), pipeline_inputs(cube(d)), 1)


def belief_of(
    history: History,
    *,
    strategy: Strategy = DEFAULT,
    parameters: Mapping[str, float] | None = None,
    costs: Mapping[str, float] | None = None,
) -> Belief:
    """What follows from a history with parameters as given, nothing fitted.

    Args:
        history: Of the cube.
        strategy: The method.
        parameters: Of the process of losses, by name; others are where their search starts.
        costs: Of the process of seconds.
    """
    d = max(len(position(t.query)) for t in history)
    inputs = pipeline_inputs(cube(d))
    learner = Learner(inputs, Sizes.of(ROWS), ROWS, strategy)
    within, s = inputs.within, inputs.width
    assert within is not None
    noise = Noise() if strategy.is_published else FallingNoise(s)
    of_losses = (*FidelityKernel(within, s, strategy.basis).parameters, *noise.parameters)
    of_costs = (*FidelityKernel(within, s, COST).parameters, *Noise().parameters)
    kept = {
        name: {"thetas": [[(given or {}).get(p.name, p.start) for p in all_of]], "n": 1}
        for name, all_of, given in (("losses", of_losses, parameters), ("costs", of_costs, costs))
    }
    return learner.recall(seen_of(history), kept)
