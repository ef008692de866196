"""Small spaces with known paths, planted losses, and trials."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    ForbiddenAndConjunction,
    ForbiddenEqualsClause,
    Integer,
)
from ConfigSpace.hyperparameters import Hyperparameter

from prefect_tune.optimizers import (
    Algorithm,
    Budget,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    Flags,
    History,
    Optimizer,
    Query,
    Space,
    Step,
    StepCost,
    Trial,
    order_step,
)
from prefect_tune.optimizers.space.configuration import default_configuration

TOY = (2, 3)
BENCHMARK = (4, 2, 13, 14)
"""Algorithms per step of FLASH's benchmark: 1,456 paths."""
FIRST_THIRTY = [
    *(0, 561, 758, 1319, 242, 439, 1000, 1197, 120, 681, 878, 1439, 362, 461, 993),
    *(1115, 1219, 781, 885, 426, 536, 918, 1034, 966, 1013, 402, 474, 16, 17, 1),
]
"""D-optimal picks on it from path 0, ties to the lowest index."""

FAMILIES = ("binary", "count", "sum", "average")


def algorithm(name: str, *values: Hyperparameter[Any, Any], **more: Any) -> Algorithm:
    """Return an algorithm of that id with these hyperparameters."""
    space = ConfigurationSpace(space=list(values))
    given = {"estimator": f"x.{name.title()}", "hyperparameters": space, **more}
    return Algorithm(id=name, **given)


def one_algorithm(*values: Hyperparameter[Any, Any]) -> Space:
    """Return a space of one step with one algorithm."""
    return Space("one", (Step("s", (algorithm("a", *values),)),))


NONE = Algorithm(id="none")
UNIT = algorithm("unit")
POWER = algorithm("power", Float("p", (0.5, 2.0), default=1.0))
BAYES = algorithm("bayes")
DEPTH = Integer("depth", (1, 50), log=True, default=5)
C = Float("C", (1e-3, 1e3), log=True, default=1.0)


def mixed_space() -> Space:
    """Return a space of 2 x 3 paths, with conditions, a forbidden pair, log scales and integers."""
    kernel = ConfigurationSpace(
        space=[
            C,
            Categorical("kernel", ["rbf", "poly"], default="rbf"),
            Integer("poly.degree", (2, 5), default=3),
        ]
    )
    kernel.add(EqualsCondition(kernel["poly.degree"], kernel["kernel"], "poly"))
    models = algorithm("svm", hyperparameters=kernel), algorithm("tree", DEPTH), BAYES
    return Space(
        "mixed",
        (Step("scale", (NONE, UNIT)), Step("model", models)),
        forbidden=frozenset({(("scale", "none"), ("model", "svm"))}),
    )


def ordered_space(n: int = 3) -> Space:
    """Return a space of two models after up to four steps in any order, each idle or a scaler."""
    names = "abcd"[:n]
    steps = order_step(*names), *(Step(name, (NONE, algorithm("scale"), POWER)) for name in names)
    return Space("ordered", (*steps, Step("model", (algorithm("tree"), BAYES))))


def ignoring_space() -> Space:
    """Return a space where a tree ignores all earlier steps, and Bayes ignores scaling.

    Of 3 x 3 x 2 x 3 = 54 paths, 13 are canonical: 1 path of the tree, 2 x 2 paths of Bayes, and
    2 x 3 paths of the support vector machine without selection and 2 paths with selection.
    """
    left_out = Algorithm(id="none", only_ignored=True)
    models = (
        algorithm("tree", DEPTH, ignores=("impute", "scale", "select")),
        algorithm("bayes", ignores=("scale",)),
        algorithm("svm", C),
    )
    return Space(
        "ignoring",
        (
            Step("impute", (left_out, algorithm("mean"), POWER)),
            Step("scale", (NONE, UNIT, POWER)),
            Step("select", (NONE, algorithm("some", ignores=("scale",)))),
            Step("model", models),
        ),
    )


def finite_space() -> Space:
    """Return a discrete space with 5 configurations, one pair of values forbidden."""
    grid = ConfigurationSpace(
        space=[Categorical("a", ["x", "y"], default="x"), Categorical("b", [1, 2], default=1)]
    )
    grid.add(
        ForbiddenAndConjunction(
            ForbiddenEqualsClause(grid["a"], "y"), ForbiddenEqualsClause(grid["b"], 2)
        )
    )
    models = algorithm("grid", hyperparameters=grid), algorithm("one"), algorithm("two")
    return Space("finite", (Step("model", models),))


def sparse_space() -> Space:
    """Return a space of a step with sparse output, a step that may densify, and a dense model."""
    dense = algorithm("dense", flags=Flags(output="dense"))
    picky = algorithm("picky", flags=Flags(accepts_sparse=False))
    return Space(
        "sparse",
        (
            Step("make", (algorithm("count", flags=Flags(output="sparse")),), True),
            Step("densify", (Algorithm(id="keep"), dense)),
            Step("model", (algorithm("any"), picky)),
        ),
    )


def counted_space(counts: tuple[int, ...], n_hyperparameters: int = 1) -> Space:
    """Return a space with given counts of algorithms per step and numbers per algorithm."""

    def of(j: int) -> Algorithm:
        numbers = (Float(f"h{i}", (0.0, 1.0), default=0.5) for i in range(n_hyperparameters))
        return algorithm(f"a{j}", *numbers, estimator="x.Y")

    steps = (Step(f"step{k}", tuple(map(of, range(n)))) for k, n in enumerate(counts))
    return Space("counted", tuple(steps))


def one_hot_paths(counts: tuple[int, ...]) -> np.ndarray:
    """Return all paths as one-hot rows, sorted by the first step first."""
    blocks = [np.eye(n) for n in counts]
    return np.array([np.concatenate(rows) for rows in product(*blocks)])


def events_space(*more: Algorithm) -> Space:
    """Return a space for events with shared values of feature construction on all 36 paths."""
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
        algorithm("neighbors", Integer("n", (1, 50), log=True, default=7)),
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


def planted(family: str, kind: str) -> Callable[[Query], float]:
    """Return losses that one aggregation lowers by 6 for one model family, and raises for the rest.

    With any other aggregation, the family is worse by 2 and seems not worth trying.
    """
    kinds = {"ridge": "linear", "svm": "linear", "forest": "trees", "boosting": "trees"}

    def loss(query: Query) -> float:
        own = kinds.get(query.configuration.path[-1], "other")
        total = 20.0 + 2.0 * (own in (kind, "other"))
        total += crc32(query.configuration.canonical.encode()) / 2**32
        if dict(query.configuration["construct"].values)["aggregation"] == family:
            total += -6.0 if own == kind else 3.5
        return total

    return loss


def told_history(results: Iterable[tuple[Query, float | None]]) -> History:
    """Return a history of ended trials with these losses."""
    return recorded(*(told(number, *result) for number, result in enumerate(results)))


def recorded(*trials: Trial, constraints: Sequence[Constraint] = ()) -> History:
    """Return a history of these trials."""
    history = History(constraints)
    for trial in trials:
        history.record(trial)
    return history


def evaluation(loss: float, cost_seconds: float = 1.0) -> Evaluation:
    """Return an evaluation with that loss in each of three folds."""
    return Evaluation(loss, (loss, loss, loss), cost_seconds, cost_seconds)


def told(number: int, query: Query, loss: float | None, seconds: float = 1.0) -> Trial:
    """Return an ended trial; without a loss, the trial failed after half of the seconds."""
    started = Trial(number, query).started()
    if loss is None:
        return started.failed(Failure(FailureKind.ERROR, "no loss", cost_seconds=seconds / 2))
    return started.completed(evaluation(loss, seconds))


def run_steps(
    queries: Iterable[Query], seconds: Mapping[str, float], *, is_cached: bool = True
) -> History:
    """Return a history of one-fold queries with given seconds of steps and an unlimited cache."""
    history, seen = History(), set[str]()
    for number, query in enumerate(queries):
        costs, key = [], ""
        for step, choice in query.configuration.choices:
            key += f"/{choice.to_json()}"
            hit = is_cached and key in seen
            seen.add(key)
            took = seconds.get(f"{step}.{choice.algorithm}", 0.1)
            costs.append(StepCost(step, 0, took, 0.01 if hit else 0.0, hit, key))
        spent = sum(c.load_seconds + (0.0 if c.hit else c.seconds) for c in costs)
        outcome = Evaluation(20.0, (20.0,), spent, sum(c.seconds for c in costs), tuple(costs))
        history.record(Trial(number, query).started().completed(outcome))
    return history


def defaults_of(space: Space, *numbers: int) -> list[Query]:
    """Return the defaults of the paths with these numbers, by default of all paths."""
    paths = list(space.paths())
    return [Query(default_configuration(space, paths[i])) for i in numbers or range(len(paths))]


def ask_and_tell(
    optimizer: Optimizer,
    outcome: Callable[[Query], Any],
    n: int,
    n_all: int | None = None,
    **budget: Any,
) -> list[Query]:
    """Ask and tell one by one, up to `n_all` trials; an outcome may include seconds."""
    queries = []
    for k in range(n):
        left = {} if n_all is None else {"trials_left": n_all - k}
        queries.append(query := optimizer.ask(Budget(**left, **budget)))
        found = outcome(query)
        loss, seconds = found if isinstance(found, tuple) else (found, 1.0)
        optimizer.tell(told(len(optimizer.history) - 1, query, loss, seconds))
    return queries
