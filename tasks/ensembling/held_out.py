"""Held-out predictions of an ensemble's candidates, and the contribution of each member."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import LEARN, Split
from prefect_tune.tasks.objective.metric import Metric, Predictions
from prefect_tune.tasks.objective.risk import is_quick, weighted_losses

Array = NDArray[np.float64]

_TIE = 1e-12
"""Sums of weights that differ by less are equal, because their last digits depend on the order."""


def shares(predictions: Predictions, n_classes: int) -> Array:
    """Return a model's probabilities (n, c), or votes if it has none; or its numbers (n, 1)."""
    if not n_classes:
        return np.asarray(predictions.label, dtype=np.float64)[:, None]
    if predictions.score is not None and predictions.are_probabilities:
        return predictions.score
    return np.eye(n_classes)[predictions.label]


def blend(mean: Array, n_classes: int) -> Predictions:
    """Predict from the weighted mean of the members' contributions."""
    if not n_classes:
        return Predictions(mean[:, 0])
    return Predictions(heaviest_class(mean).astype(np.int32), mean)


def heaviest_class(mean: Array) -> NDArray[np.intp]:
    """Return the class with the most weight in each row of shape (n, c); the lowest wins a tie.

    Lacoste et al. 2014, equation 4.

    >>> heaviest_class(np.array([[0.3, 0.1 + 0.2, 0.4], [0.3, 0.1 + 0.2, 0.0]]))
    array([2, 0])
    """
    return np.argmax(mean >= mean.max(axis=1, keepdims=True) - _TIE, axis=1)


@dataclass(frozen=True)
class HeldOut:
    """Predictions, by candidate and fold, for the m rows held out by the folds of a split.

    Losses raise `TimeoutError` after `until`, a reading of `monotonic`.
    """

    dataset: Dataset
    split: Split
    metric: Metric
    predictions: tuple[tuple[Predictions, ...], ...]
    until: float = inf

    def __len__(self) -> int:
        return len(self.predictions)

    @cached_property
    def rows(self) -> tuple[NDArray[np.intp], ...]:
        """The rows of each fold."""
        return tuple(self.split.held_out(fold) for fold in range(self.split.n_folds))

    def contributed(self, candidate: int) -> Array:
        """Return a candidate's contribution on all rows, fold after fold, shape (m, c)."""
        n_classes = len(self.dataset.classes)
        return np.concatenate([shares(p, n_classes) for p in self.predictions[candidate]])

    @cached_property
    def losses(self) -> Array:
        """Mean over the folds of each candidate's loss, shape (n,); nan if undefined."""
        return np.array([self.fold_losses(p).mean() for p in self.predictions])

    def fold_losses(self, predictions: Sequence[Predictions]) -> Array:
        """Return the loss of predictions in each fold, shape (n_folds,); nan if undefined."""
        self.check_time()
        found = zip(self.rows, predictions, strict=True)
        return np.array([self._loss(rows, predicted) for rows, predicted in found])

    def check_time(self) -> None:
        """Raise `TimeoutError` if the time for the choice is over."""
        if monotonic() > self.until:
            raise TimeoutError("it took longer than the time left")

    def blended(self, weights: Array) -> tuple[Predictions, ...]:
        """Return the predictions of an ensemble, by fold, for weights (n,) that sum to 1."""
        members = np.flatnonzero(weights).tolist()
        mean: Array = np.sum([weights[i] * self.contributed(i) for i in members], axis=0)
        return self.by_fold(mean)

    def by_fold(self, mean: Array) -> tuple[Predictions, ...]:
        """Return the predictions for a mean of contributions, shape (m, c), by fold."""
        ends = np.cumsum([len(rows) for rows in self.rows])[:-1]
        return tuple(blend(part, len(self.dataset.classes)) for part in np.split(mean, ends))

    def within(self, is_kept: NDArray[np.bool_]) -> "HeldOut":
        """Return the held-out predictions of some rows only, by a mask of shape (n_rows,)."""
        kept = [is_kept[rows] for rows in self.rows]
        split = replace(self.split, fold=np.where(is_kept, self.split.fold, LEARN))
        predictions = tuple(
            tuple(predicted.take(keep) for predicted, keep in zip(of_folds, kept, strict=True))
            for of_folds in self.predictions
        )
        return replace(self, split=split, predictions=predictions)

    def _loss(self, rows: NDArray[np.intp], predicted: Predictions) -> float:
        if not len(rows):
            return float("nan")
        y, n_classes = self.dataset.y[rows], len(self.dataset.classes)
        try:
            if not is_quick(self.metric):
                return self.metric.loss(y, predicted, n_classes)
            alike = np.full((1, len(y)), 1 / len(y))  # about ten times as fast as a scorer
            return float(weighted_losses(self.metric, y, predicted, n_classes, alike)[0])
        except ValueError:
            return float("nan")
