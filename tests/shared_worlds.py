"""A space in which every path aggregates events, and losses that only one aggregation lowers."""

from collections.abc import Callable, Sequence

import numpy as np
from ConfigSpace import Categorical, Float, Integer
from worlds import NONE, POWER, UNIT, algorithm, evaluation

from prefect_tune.optimizers import (
    Algorithm,
    Asked,
    Budget,
    Configuration,
    Encoding,
    Objective,
    Optimizer,
    Query,
    Space,
    Step,
    Told,
    Trial,
)

__all__ = ["FAMILIES", "KINDS", "events_space", "has_found", "kind_of", "planted", "run_planted"]

FAMILIES = ("binary", "count", "sum", "average")
KINDS = ("linear", "trees")
"""Kinds of models that the values are planted for."""


def events_space(*more: Algorithm) -> Space:
    """One construction of features, or more of them, on all of 3 x 2 x 6 = 36 paths."""
    aggregation = Categorical("aggregation", FAMILIES, default="count")
    frequency = Integer("min_frequency", (2, 5), default=3)
    depth = Integer("depth", (1, 50), log=True, default=5)
    strength = Float("C", (1e-3, 1e3), log=True, default=1.0)
    models = (
        algorithm("bayes"),
        algorithm("ridge", strength, kind="linear"),
        algorithm("svm", strength, kind="linear"),
        algorithm("forest", depth, kind="trees"),
        algorithm("boosting", depth, kind="boosted_trees"),
        algorithm("neighbours", Integer("n", (1, 50), log=True, default=7)),
    )
    return Space(
        "events",
        (
            Step("construct", (algorithm("aggregate", aggregation, frequency), *more)),
            Step("scale", (NONE, UNIT, POWER)),
            Step("select", (NONE, algorithm("some", Float("share", (0.1, 1.0), default=0.5)))),
            Step("model", models),
        ),
    )


def kind_of(configuration: Configuration) -> str:
    """The kind of the model of a configuration, of those that values are planted for."""
    known = {"ridge": "linear", "svm": "linear", "forest": "trees", "boosting": "trees"}
    return known.get(configuration.path[-1], "other")


def planted(
    space: Space, family: str, kind: str, seed: int, noise: float = 0.3
) -> Callable[[Query], float]:
    """Losses that one aggregation lowers by 6 with one kind of model, and raises with others.

    That kind is worse by 2 with any other aggregation, so it seems not worth a look.
    """
    rng = np.random.default_rng([seed, FAMILIES.index(family), KINDS.index(kind)])
    weights = {(s.name, a.id): rng.exponential(1.5) for s in space.searched for a in s.algorithms}
    effects = {(k, v): rng.uniform(0, 2) for k in (*KINDS, "other") for v in FAMILIES}
    effects |= {(k, family): rng.uniform(3, 4) for k in (*KINDS, "other")}
    effects[kind, family] = -6.0
    encoding = Encoding(space)
    best = rng.uniform(0.2, 0.8, len(encoding.columns))
    scales = rng.uniform(0, 4, len(encoding.columns))

    def loss(query: Query) -> float:
        configuration = query.configuration
        own, values = kind_of(configuration), dict(configuration["construct"].values)
        total = 20.0 + 2.0 * (own in (kind, "other"))
        total += effects.get((own, str(values.get("aggregation"))), 0.0)
        total += sum(weights[step, choice.algorithm] for step, choice in configuration.choices)
        units, active = encoding.to_cube(configuration)
        is_free = active & np.array([name != "aggregation" for *_, name in encoding.columns])
        total += float((scales * (units - best) ** 2)[is_free].sum())
        return total + noise * float(rng.normal())

    return loss


def run_planted(
    optimizer: Optimizer, loss_of: Callable[[Query], float], n: int, n_all: int | None = None
) -> Sequence[Asked | Told]:
    """Ask and tell one by one, in a budget of `n_all` trials, `n` by default."""
    events: list[Asked | Told] = []
    for number in range(n):
        budget = Budget(trials_left=(n_all or n) - number)
        query = optimizer.ask(budget)
        trial = Trial(number, query).started().completed(evaluation(loss_of(query)))
        optimizer.tell(trial)
        events += [Asked(number, query, budget, optimizer.memo), Told(trial)]
    return events


def has_found(method: type[Optimizer], family: str, kind: str, seed: int, n: int) -> bool:
    """Whether the incumbent after `n` trials has the planted aggregation and kind of model."""
    optimizer = method(events_space(), seed, Objective())
    run_planted(optimizer, planted(optimizer.space, family, kind, seed), n)
    incumbent = optimizer.incumbent
    assert incumbent is not None
    found = incumbent.query.configuration
    return kind_of(found) == kind and dict(found["construct"].values)["aggregation"] == family
