"""Contributions of members to an ensemble, and the predictions made of them."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.tasks.objective.metric import Predictions

__all__ = ["blend", "heaviest_class", "shares"]

_TIE = 1e-12
"""Sums of weights that differ by less are equal: their last digits depend on the order."""


def shares(predictions: Predictions, n_classes: int) -> NDArray[np.float64]:
    """Return what a model contributes to an ensemble.

    Its probabilities, shape (n, c); its votes where it gives none; its numbers, shape (n, 1), where
    there are no classes.
    """
    if not n_classes:
        return np.asarray(predictions.label, dtype=np.float64)[:, None]
    if predictions.score is not None and predictions.are_probabilities:
        return predictions.score
    votes: NDArray[np.float64] = np.eye(n_classes)[predictions.label]
    return votes


def blend(mean: NDArray[np.float64], n_classes: int) -> Predictions:
    """Predict from the weighted mean of what the members contribute."""
    if not n_classes:
        return Predictions(mean[:, 0])
    return Predictions(heaviest_class(mean).astype(np.int32), mean)


def heaviest_class(mean: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the class with the most weight in each row of shape (n, c); of equals, the lowest.

    Lacoste et al. 2014, equation 4.

    >>> heaviest_class(np.array([[0.3, 0.1 + 0.2, 0.4], [0.3, 0.1 + 0.2, 0.0]]))
    array([2, 0])
    """
    found: NDArray[np.intp] = np.argmax(mean >= mean.max(axis=1, keepdims=True) - _TIE, axis=1)
    return found
