"""Predictions of an ensemble after some of its rounds, as if it had been trained no further."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import BaggingClassifier, BaggingRegressor

from prefect_tune.tasks.fitting.fitting import n_rows
from prefect_tune.tasks.objective.predictions import (
    Predictions,
    checked_predictions,
    predictions_of,
)

__all__ = ["MemberSum", "staged_predictions"]


@dataclass(slots=True)
class MemberSum:
    """The sum of what the first members of a forest or bag predict.

    Attributes:
        n: How many members.
        total: The sum, of one shape with the predictions.
    """

    n: int = 0
    total: Any = 0.0


def staged_predictions(
    ensemble: Any,
    X: Any,
    classes: NDArray[Any],
    rounds: Sequence[int],
    begun: MemberSum | None = None,
) -> Iterator[Predictions]:
    """Yield the predictions after each of some numbers of rounds, in one go over the rounds.

    They are, to the last bit, those that `predict` gives of an ensemble of so many rounds.

    Args:
        ensemble: Boosted trees, a forest or a bag, fitted.
        X: Rows to predict.
        classes: All classes, sorted; empty when numbers are predicted.
        rounds: In rising order, equal ones allowed; at most as many as it has.
        begun: Where an earlier call for the same rows ended, to go on from; it is moved on. Only
            forests and bags make use of it.
    """
    is_classifier, predictions, at = bool(len(classes)), Predictions(np.empty(0)), 0
    if not n_rows(X):
        yield from (predictions_of(ensemble, X, classes) for _ in rounds)
        return
    if hasattr(ensemble, "staged_predict"):
        found = _boosted(ensemble, X, is_classifier=is_classifier)
    else:
        found = _averaged(ensemble, X, begun or MemberSum(), is_classifier=is_classifier)
    for wanted in rounds:
        while at < wanted:
            at, label, score = next(found)
            if at == wanted:
                predictions = checked_predictions(ensemble, X, classes, label, score)
        yield predictions


Stages = Iterator[tuple[int, NDArray[Any], NDArray[np.float64] | None]]
"""The number of rounds, labels or numbers, and probabilities."""


def _boosted(ensemble: Any, X: Any, *, is_classifier: bool) -> Stages:
    if not is_classifier:
        yield from ((n, found, None) for n, found in enumerate(ensemble.staged_predict(X), 1))
        return
    both = zip(ensemble.staged_predict(X), ensemble.staged_predict_proba(X), strict=True)
    yield from ((n, np.atleast_1d(label), score) for n, (label, score) in enumerate(both, 1))


def _averaged(ensemble: Any, X: Any, begun: MemberSum, *, is_classifier: bool) -> Stages:
    """Yield the mean of the members so far; they are added in their order, as `predict` does."""
    members = _members(ensemble, X, begun.n, is_classifier=is_classifier)
    while True:
        if begun.n:
            mean = begun.total / begun.n
            if is_classifier:
                yield begun.n, ensemble.classes_.take(mean.argmax(axis=1), axis=0), mean
            else:
                yield begun.n, mean, None
        begun.total = begun.total + next(members)
        begun.n += 1


def _members(
    ensemble: Any, X: Any, first: int, *, is_classifier: bool
) -> Iterator[NDArray[np.float64]]:
    """Yield the probabilities, or numbers, that each member predicts."""
    what = "predict_proba" if is_classifier else "predict"
    if isinstance(ensemble, BaggingClassifier | BaggingRegressor):
        alone = copy(ensemble).set_params(n_estimators=1)
        for i in range(first, len(ensemble.estimators_)):
            alone.estimators_ = ensemble.estimators_[i : i + 1]
            alone.estimators_features_ = ensemble.estimators_features_[i : i + 1]
            yield getattr(alone, what)(X)
        return
    checked = _as_trees_take_it(X)
    for tree in ensemble.estimators_[
        first:
    ]:  # checked for each, it would cost more than the prediction
        yield getattr(tree, what)(checked, check_input=False)


def _as_trees_take_it(X: Any) -> Any:
    if not sparse.issparse(X):
        return np.ascontiguousarray(X, dtype=np.float32)
    rows = sparse.csr_matrix(X, dtype=np.float32)
    rows.indices, rows.indptr = rows.indices.astype(np.intc), rows.indptr.astype(np.intc)
    return rows
