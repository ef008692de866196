"""Small exact spaces, and trials in them."""

from collections.abc import Iterable, Sequence
from typing import Any

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
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    Flags,
    History,
    Query,
    Space,
    Step,
    Trial,
    order_step,
)


def algorithm(name: str, *values: Hyperparameter[Any, Any], **more: Any) -> Algorithm:
    """One of that id, with such hyperparameters."""
    space = ConfigurationSpace(space=list(values))
    given = {"estimator": f"x.{name.title()}", "hyperparameters": space, **more}
    return Algorithm(id=name, **given)


def one_algorithm(*values: Hyperparameter[Any, Any]) -> Space:
    """A space of one step with one algorithm."""
    return Space("one", (Step("s", (algorithm("a", *values),)),))


NONE = Algorithm(id="none")
UNIT = algorithm("unit")
POWER = algorithm("power", Float("p", (0.5, 2.0), default=1.0))
BAYES = algorithm("bayes")
DEPTH = Integer("depth", (1, 50), log=True, default=5)
C = Float("C", (1e-3, 1e3), log=True, default=1.0)


def mixed_space() -> Space:
    """Two steps, 2 x 3 paths, with conditions, a forbidden pair, logs and integers."""
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
    """Up to four steps, each of them idle or one of two scalers, in any order, and two models."""
    names = "abcd"[:n]
    steps = order_step(*names), *(Step(name, (NONE, algorithm("scale"), POWER)) for name in names)
    return Space("ordered", (*steps, Step("model", (algorithm("tree"), BAYES))))


def ignoring_space() -> Space:
    """A tree ignores all steps before it, Bayes one of them; only what is ignored may be left out.

    Of 3 x 3 x 2 x 3 = 54 paths 13 are canonical: 1 of the tree, 2 x 2 of Bayes, and of the support
    vector machine 2 x 3 where nothing and 2 where something is selected.
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
    """Discrete only: 5 configurations in all, one pair of values forbidden."""
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
    """A step that makes sparse data, one that may make it dense, a model that needs it dense."""
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


def told_history(results: Iterable[tuple[Query, float | None]]) -> History:
    """A history of trials that have ended with such losses."""
    return recorded(*(told(number, *result) for number, result in enumerate(results)))


def recorded(*trials: Trial, constraints: Sequence[Constraint] = ()) -> History:
    """A history of these trials."""
    history = History(constraints)
    for trial in trials:
        history.record(trial)
    return history


def evaluation(loss: float, cost_seconds: float = 1.0) -> Evaluation:
    """An evaluation with that loss in each of three folds."""
    return Evaluation(loss, (loss, loss, loss), cost_seconds, cost_seconds)


def told(number: int, query: Query, loss: float | None) -> Trial:
    """A trial that has ended: failed without a loss."""
    started = Trial(number, query).started()
    if loss is None:
        return started.failed(Failure(FailureKind.ERROR, "no loss", cost_seconds=0.5))
    return started.completed(evaluation(loss))
