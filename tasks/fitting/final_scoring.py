"""Scoring of the stored final model on the test rows; after a failure, the model stays."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.storage.masking import masked
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import REFIT, Split
from prefect_tune.tasks.objective.declaration import EqualRows, Usefulness
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of
from prefect_tune.tasks.objective.usefulness import usefulness
from prefect_tune.tasks.user_code import exits_as_errors

_MOST_CLASSES = 5
"""Most missing classes that a message names."""


@dataclass(frozen=True, slots=True)
class LossOnTest:
    """The loss of a model on the test rows; None if `undefined` for a reason, or without test rows.

    `is_final` is false if scoring again may succeed, after a worker died or exceeded a limit.
    `usefulness` compares the model with a constant; None if that is undefined.
    """

    loss: float | None
    undefined: str = ""
    is_final: bool = True
    usefulness: Usefulness | None = field(default=None, compare=False)
    equal: EqualRows | None = None


def predicted(model: Any, dataset: Dataset, rows: NDArray[np.intp]) -> Predictions:
    """Return a model's predictions of some rows of a data set; errors of the model are raised."""
    with exits_as_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as in the fit
        return predictions_of(model, dataset.rows(rows), dataset.learned_classes)


def loss_on_test(model: Any, dataset: Dataset, split: Split, metric: Metric) -> LossOnTest:
    """Return the loss of a model on the test rows, or why it is undefined."""
    rows = split.held_out(REFIT)
    if not len(rows):
        return LossOnTest(None)
    try:
        predictions = predicted(model, dataset, rows)
    except Exception as error:  # any kind: the model may be a user's own
        return LossOnTest(None, f"the model cannot predict the test rows: {_line(error)}")
    if split.equal is None:
        return _loss(dataset, split, rows, predictions, metric)
    is_equal = split.equal[rows]
    other_rows = np.flatnonzero(~is_equal)
    other = _loss(dataset, split, rows[other_rows], predictions.take(other_rows), metric)
    whole = _loss(dataset, split, rows, predictions, metric)
    are_left_out = dataset.is_test is not None and bool(2 * is_equal.sum() > len(rows))
    shown, beside = (other, whole) if are_left_out else (whole, other)
    equal = EqualRows(int(is_equal.sum()), len(rows), beside.loss, are_left_out)
    return replace(shown, equal=equal)


def _loss(
    dataset: Dataset,
    split: Split,
    rows: NDArray[np.intp],
    predictions: Predictions,
    metric: Metric,
) -> LossOnTest:
    if not len(rows):
        return LossOnTest(None, "all test rows equal a training row")
    y, n_classes = dataset.y[rows], len(dataset.classes)
    missing = _missing_classes(y, dataset.classes)
    try:
        loss = metric.loss(y, predictions, n_classes)
        lacks_rows = metric.lacks_rows(y, predictions, n_classes)
    except Exception as error:  # any kind: test rows may lack what every fold had
        return LossOnTest(None, f"{missing}{_line(error)}")
    if lacks_rows:
        return LossOnTest(None, f"{missing}{metric.name} needs rows of every class it measures")
    return LossOnTest(loss, usefulness=usefulness(dataset, split, metric, rows, predictions))


def _line(error: Exception) -> str:
    """Return the first line of an error, with its type if the message alone says little."""
    text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return masked(text.split("\n", 1)[0])


def _missing_classes(y: NDArray[Any], classes: tuple[Any, ...]) -> str:
    """Return the classes missing from the test rows, as the start of a reason."""
    missing = [str(classes[i]) for i in np.setdiff1d(np.arange(len(classes)), y)]
    if not missing:
        return ""
    more = len(missing) - _MOST_CLASSES
    named = ", ".join(missing[:_MOST_CLASSES]) + (f" and {more} more" if more > 0 else "")
    return f"the test rows have no row of class {named}; "
