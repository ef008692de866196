"""Predictions of an ensemble after some of its rounds, as if it had been trained no further."""

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.ensemble import BaggingClassifier, BaggingRegressor

from prefect_tune.tasks.fitting.fitting import as_predictions
from prefect_tune.tasks.objective.metric import Predictions

__all__ = ["staged_predictions"]


def staged_predictions(
    ensemble: Any, X: Any, classes: NDArray[Any], rounds: Sequence[int]
) -> Iterator[Predictions]:
    """Yield the predictions after each of some numbers of rounds, in one go over the rounds.

    They are, to the last bit, those that `predict` gives of an ensemble of so many rounds.

    Args:
        ensemble: Boosted trees, a forest or a bag, fitted.
        X: Rows to predict.
        classes: All classes, sorted; empty when numbers are predicted.
        rounds: In rising order, equal ones allowed; at most as many as it has.
    """
    stages = _boosted if hasattr(ensemble, "staged_predict") else _averaged
    found = enumerate(stages(ensemble, X, is_classifier=bool(len(classes))), 1)
    at, predictions = 0, Predictions(np.empty(0))
    for wanted in rounds:
        while at < wanted:
            at, (label, score) = next(found)
            if at == wanted:
                predictions = as_predictions(label, score, classes, ensemble)
        yield predictions


Stages = Iterator[tuple[NDArray[Any], NDArray[np.float64] | None]]
"""Labels or numbers and probabilities, after each round."""


def _boosted(ensemble: Any, X: Any, *, is_classifier: bool) -> Stages:
    if not is_classifier:
        yield from ((label, None) for label in ensemble.staged_predict(X))
        return
    both = zip(ensemble.staged_predict(X), ensemble.staged_predict_proba(X), strict=True)
    yield from ((np.atleast_1d(label), score) for label, score in both)


def _averaged(ensemble: Any, X: Any, *, is_classifier: bool) -> Stages:
    """Yield the mean of the members so far; they are added in their order, as `predict` does."""
    total: Any = 0.0
    for n, member in enumerate(_members(ensemble, X, is_classifier=is_classifier), 1):
        total = total + member
        mean = total / n
        if is_classifier:
            yield ensemble.classes_.take(mean.argmax(axis=1), axis=0), mean
        else:
            yield mean, None


def _members(ensemble: Any, X: Any, *, is_classifier: bool) -> Iterator[NDArray[np.float64]]:
    """Yield the probabilities, or numbers, that each member predicts."""
    what = "predict_proba" if is_classifier else "predict"
    if isinstance(ensemble, BaggingClassifier | BaggingRegressor):
        alone = copy(ensemble).set_params(n_estimators=1)
        for i, member in enumerate(ensemble.estimators_):
            alone.estimators_, columns = [member], ensemble.estimators_features_
            alone.estimators_features_ = columns[i : i + 1]
            yield getattr(alone, what)(X)
        return
    X = sparse.csr_matrix(X, dtype=np.float32) if sparse.issparse(X) else np.float32(X)
    for tree in ensemble.estimators_:
        yield getattr(tree, what)(X)
