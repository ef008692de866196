"""The steps of a trial as expressions of scikit-learn's own classes, where these do the same."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.preprocessing import FunctionTransformer

from prefect_tune.tasks.catalogue.boosting.native import NativeClassifier, NativeRegressor
from prefect_tune.tasks.catalogue.estimators import (
    QuadraticDiscriminant,
    SelectByModel,
    SelectByPercentile,
    SelectByScore,
)
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.exporting.plain import clip_at_zero, plain
from prefect_tune.tasks.exporting.portable import is_ours
from prefect_tune.tasks.fitting.iterative import rounds_after, training_of
from prefect_tune.tasks.fitting.recipe import build
from prefect_tune.tasks.repairs import REPAIRS
from prefect_tune.tasks.reproduction.described import NotWritten, described
from prefect_tune.tasks.reproduction.expressions import (
    Call,
    Expression,
    Name,
    merged,
    names_in,
)
from prefect_tune.tasks.reproduction.fold_steps import StepInFold

__all__ = ["Epochs", "WrittenStep", "written_steps"]

_SELECTIONS = (SelectByModel, SelectByPercentile, SelectByScore)
_ROUNDED = ("sklearn.decomposition", "sklearn.manifold")
_BY_COLUMN = {
    "ColumnTransformer",
    "FeatureAgglomeration",
    "GenericUnivariateSelect",
    "SelectByModel",
    "SelectByPercentile",
    "SelectByScore",
    "SelectFromModel",
    "SelectKBest",
    "SelectPercentile",
    "VarianceThreshold",
}
_ORDER_IS_ONE = ("sklearn.ensemble.", "sklearn.tree.", "prefect_tune.tasks.catalogue.boosting.")
"""Modules of models that look at one column at a time."""
_IN_ROWS = FunctionTransformer(np.ascontiguousarray)
_WHY_IN_ROWS = "in memory row by row, as in the study: the last digits of sums depend on it"
_ROOM = 255
"""Categories of a column that histograms have room for."""


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step of a pipeline as an expression.

    Attributes:
        name: Of the step.
        expression: What makes its estimator, in each fold.
        remarks: What is to be said of it.
        is_weighted: Whether rows are weighed by their classes where it is fitted.
        passes: Passes over the rows that it is trained for; None where it is fitted at once.
        is_out_of_fold: Whether training rows are what `fit_transform` makes of them.
        is_rounded: Whether `fit_transform` differs from `transform` in the last digits.
    """

    name: str
    expression: Expression
    remarks: tuple[str, ...] = ()
    is_weighted: bool = False
    passes: int | None = None
    is_out_of_fold: bool = False
    is_rounded: bool = False


@dataclass(frozen=True, slots=True)
class Epochs:
    """How far the model of a trial was trained.

    Attributes:
        full: Epochs of a full training.
        best: The epoch that counts.
    """

    full: int
    best: int


def written_steps(
    steps: Sequence[tuple[StepInFold, ...]], dataset: Dataset, epochs: Epochs | None = None
) -> Iterator[WrittenStep]:
    """Yield the steps of a trial, repairs before the step that needs them.

    Args:
        steps: In order, each in all of the folds.
        dataset: The rows.
        epochs: How far iterative models were trained; None where they were fitted at once.
    """
    for position, in_folds in enumerate(steps):
        for repair in in_folds[0].recipe.repairs:
            is_idle = repair == "bound_categories" and _most_categories(dataset) <= _ROOM
            if not is_idle:
                expression = described(_repair(repair, in_folds[0].given.layout))
                name = f"{repair} {in_folds[0].name}"
                yield WrittenStep(name, expression, _about(expression))
        later = steps[position + 1 :]
        step = _written(in_folds, dataset, None if later else epochs)
        yield step
        if _is_by_column(step.expression) and any(map(_adds_up, later)):
            yield WrittenStep(f"{step.name} in C order", described(_IN_ROWS), (_WHY_IN_ROWS,))


def _is_by_column(expression: Expression) -> bool:
    """Return whether a step may hand on a matrix that lies in memory column by column."""
    hands_on_frame = isinstance(expression, Call) and bool(expression.method)
    return not hands_on_frame and any(name.name in _BY_COLUMN for name in names_in(expression))


def _adds_up(in_folds: Sequence[StepInFold]) -> bool:
    """Return whether the last digits of what a step makes depend on the order in memory."""
    return not in_folds[0].recipe.estimator.startswith(_ORDER_IS_ONE)


def _written(
    in_folds: Sequence[StepInFold], dataset: Dataset, epochs: Epochs | None
) -> WrittenStep:
    trained = [_trained(step, dataset, epochs) for step in in_folds]
    expression, how = merged([expression for expression, _ in trained]), in_folds[0].recipe
    remarks = _about(expression)
    if any(step.keeps_one for step in in_folds) and remarks:
        remarks = ("where it would select no column, it keeps the best one", *remarks)
    if not all(step.is_reached for step in in_folds):
        remarks = (*remarks, "the trial failed before it: its data is taken for that before")
    return WrittenStep(
        in_folds[0].name,
        expression,
        remarks,
        is_weighted=how.weights == "sample_weight",
        passes=trained[0][1],
        is_out_of_fold=how.out_of_fold,
        is_rounded=any(n.module.startswith(_ROUNDED) for n in names_in(expression)),
    )


def _most_categories(dataset: Dataset) -> int:
    """Return how many categories the column with most of them has."""
    if not isinstance(dataset.X, pd.DataFrame):
        return 0
    columns = dataset.X.select_dtypes("category")
    return max((len(columns[name].cat.categories) for name in columns), default=0)


def _repair(name: str, layout: str) -> Any:
    if name == "clip" and layout == "dense":
        return clip_at_zero()
    return REPAIRS[name]()


def _about(expression: Expression) -> tuple[str, ...]:
    """Return what is to be said of classes that are not scikit-learn's."""
    ours = sorted({name.name for name in names_in(expression) if is_ours(name.module)})
    return tuple(f"{name} is prefect-tune's: scikit-learn has no counterpart" for name in ours)


def _trained(
    step: StepInFold, dataset: Dataset, epochs: Epochs | None
) -> tuple[Expression, int | None]:
    """Return what makes an estimator, and the passes that it is trained for."""
    how = replace(step.recipe, repairs=())
    estimator, passes = build(how, step.seed), None
    iterative = None if epochs is None else training_of(how)
    if iterative is not None and epochs is not None:
        estimator.set_params(**iterative.settings)
        if iterative.rounds:
            total = int(getattr(estimator, iterative.rounds))
            n_rounds = rounds_after(epochs.best, epochs.full, total)
            estimator.set_params(**{iterative.rounds: n_rounds})
        else:
            passes = epochs.best
    has_categories = step.given.layout == "frame" and _most_categories(dataset) > 0
    try:
        return described(_plain(estimator, step, has_categories=has_categories)), passes
    except NotWritten:
        return _as_called(step), passes


def _plain(estimator: Any, step: StepInFold, *, has_categories: bool) -> Any:
    if isinstance(estimator, QuadraticDiscriminant):
        share = estimator.reg_param
        if step.rarest <= step.given.columns:
            return QuadraticDiscriminantAnalysis(solver="eigen", shrinkage=share)
        return QuadraticDiscriminantAnalysis(reg_param=share)
    if isinstance(estimator, _SELECTIONS) and step.keeps_one:
        return estimator
    if isinstance(estimator, NativeClassifier | NativeRegressor) and not has_categories:
        return estimator.estimator  # there are none that it would have to be told of
    return plain(estimator)


def _as_called(step: StepInFold) -> Expression:
    """Return a call of what makes an estimator that cannot be described from its parameters."""
    how = step.recipe
    arguments = dict(how.arguments) | ({"random_state": step.seed} if how.stochastic else {})
    module, _, name = how.estimator.rpartition(".")
    given = tuple((name, described(value)) for name, value in arguments.items())
    return Call(Name(module, name), given)
