"""Risks: the loss of a model in each bootstrap of the held-out examples.

Bootstraps are drawn once, from the study's seed, and shared by all trials. They are drawn within
each fold, so folds count equally, as they do in the loss.

Many metrics need no loop over bootstraps, because a bootstrap is a row of weights that sum to 1.
Mean losses over rows are one matrix product. Precision, recall and similar scores follow from
weighted class counts; the area under the curve sorts the scores once (Lacoste et al. 2014).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.plugins import loaded
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.metric import Metric, Predictions

Array = NDArray[np.float64]
Targets = NDArray[Any]
"""True classes or numbers, shape (m,)."""
Counts = NDArray[np.uint16]
"""How often each example was drawn, shape (N, m)."""

_ZERO = 1e-12
"""Smaller spreads count as constant."""


@dataclass(frozen=True)
class _Shares:
    """Shares (N, c) of the rows that belong to, are predicted as, or hit each class."""

    true: Array
    predicted: Array
    hit: Array


def _shares(y: Targets, predictions: Predictions, n_classes: int, weights: Array) -> _Shares:
    true, predicted = (np.eye(n_classes)[labels] for labels in (y, predictions.label))
    return _Shares(weights @ true, weights @ predicted, weights @ (true * predicted))


def _ratio(part: Array, whole: Array) -> Array:
    """Return shares of a whole; 0 if the whole is 0, as in scikit-learn."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


Rate = Callable[[Array, Array, Array], Array]
"""Maps hits, predicted shares and true shares to a score of the same shape."""

_RATES: Mapping[str, Rate] = {
    "precision": lambda hit, predicted, true: _ratio(hit, predicted),  # noqa: ARG005
    "recall": lambda hit, predicted, true: _ratio(hit, true),  # noqa: ARG005
    "f1": lambda hit, predicted, true: _ratio(2 * hit, predicted + true),
    "jaccard": lambda hit, predicted, true: _ratio(hit, predicted + true - hit),
}


def _macro(rate: Rate, of: _Shares) -> Array:
    is_there = of.true > 0
    return (rate(of.hit, of.predicted, of.true) * is_there).sum(axis=1) / is_there.sum(axis=1)


_AVERAGES: Mapping[str, Callable[[Rate, _Shares], Array]] = {
    "": lambda rate, of: rate(of.hit, of.predicted, of.true)[:, 1],
    "_macro": _macro,
    "_micro": lambda rate, of: rate(
        of.hit.sum(axis=1), of.predicted.sum(axis=1), of.true.sum(axis=1)
    ),
    "_weighted": lambda rate, of: (rate(of.hit, of.predicted, of.true) * of.true).sum(axis=1),
}


def _matthews(of: _Shares) -> Array:
    """Return the correlation of predictions with the truth (Gorodkin 2004)."""
    spread = (1 - (of.predicted**2).sum(axis=1)) * (1 - (of.true**2).sum(axis=1))
    shared = of.hit.sum(axis=1) - (of.predicted * of.true).sum(axis=1)
    is_constant = spread <= _ZERO
    return np.where(is_constant, 0.0, shared / np.sqrt(np.where(is_constant, 1, spread)))


_SCORES: Mapping[str, Callable[[_Shares], Array]] = {
    "balanced_accuracy": lambda of: _ratio(of.hit, of.true).sum(axis=1) / (of.true > 0).sum(axis=1),
    "matthews_corrcoef": _matthews,
    **{
        f"{name}{average}": partial(mean, rate)
        for name, rate in _RATES.items()
        for average, mean in _AVERAGES.items()
    },
}


def _loss_of(
    score: Callable[[_Shares], Array],
) -> Callable[[Targets, Predictions, int, Array], Array]:
    return lambda y, predictions, n_classes, weights: (
        1 - score(_shares(y, predictions, n_classes, weights))
    )


CONFUSIONS = SimpleNamespace(**{name: _loss_of(score) for name, score in _SCORES.items()})
"""Functions from true classes, predictions, their number and weights (N, m) to losses, shape (N,),
by metric. Two-class metrics treat the class in position 1 as positive."""


RowLosses = Callable[[Targets, Predictions], Array]
"""Maps true values and predictions to the loss of each row, shape (m,)."""
Weighted = Callable[[Targets, Predictions, int, Array], Array]
"""Maps true values, predictions, the number of classes and weights (N, m) to losses, (N,)."""


def one_if_wrong(y: Targets, predictions: Predictions) -> Array:
    """Return 1 for each wrong row."""
    return (predictions.label != y).astype(np.float64)


def percent_if_wrong(y: Targets, predictions: Predictions) -> Array:
    """Return 100 for each wrong row."""
    return 100 * one_if_wrong(y, predictions)


def absolute(y: Targets, predictions: Predictions) -> Array:
    """Return absolute errors."""
    return np.abs(predictions.label - y)


def squared(y: Targets, predictions: Predictions) -> Array:
    """Return squared errors."""
    return (predictions.label - y) ** 2


def squared_log(y: Targets, predictions: Predictions) -> Array:
    """Return squared errors of logarithms."""
    return (np.log1p(predictions.label) - np.log1p(y)) ** 2


def relative(y: Targets, predictions: Predictions) -> Array:
    """Return absolute errors relative to the true numbers."""
    return np.abs(predictions.label - y) / np.maximum(np.abs(y), np.finfo(float).eps)


def surprise(y: Targets, predictions: Predictions) -> Array:
    """Return negative logarithms of the probabilities of the true classes."""
    score = _probabilities(predictions)
    eps = np.finfo(score.dtype).eps
    return -np.log(np.clip(score[np.arange(len(y)), y], eps, 1 - eps))


def brier(y: Targets, predictions: Predictions) -> Array:
    """Return squared distances from the true class; for two classes, in one column only."""
    score = _probabilities(predictions)
    distances: Array = ((score - np.eye(score.shape[1])[y]) ** 2).sum(axis=1)
    return distances / 2 if score.shape[1] == 2 else distances


def _probabilities(predictions: Predictions) -> Array:
    if predictions.score is None or not predictions.are_probabilities:
        raise ValueError(f"the metric needs probabilities, and {predictions.why_no_probabilities}")
    return predictions.score


def _root_of(losses: RowLosses) -> Weighted:
    return lambda y, predictions, n_classes, weights: np.sqrt(weights @ losses(y, predictions))  # noqa: ARG005


root_squared = _root_of(squared)
root_squared_log = _root_of(squared_log)


def unexplained(
    y: Targets,
    predictions: Predictions,
    n_classes: int,  # noqa: ARG001
    weights: Array,
) -> Array:
    """Return 1 - R2: squared errors over squared distances from the bootstrap's own mean."""
    centred = y - y.mean()
    spread = weights @ centred**2 - (weights @ centred) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return (weights @ squared(y, predictions)) / spread


def missed_areas(y: Targets, predictions: Predictions, n_classes: int, weights: Array) -> Array:
    """Return 1 - AUROC; with several classes, one against the rest, weighted by class shares."""
    score = predictions.score
    if score is None:
        score = np.eye(n_classes)[predictions.label]
    if n_classes == 2:
        return 1 - weighted_areas(score[:, 1], y == 1, weights)
    shares = np.stack([weights[:, y == c].sum(axis=1) for c in range(n_classes)])
    areas = [weighted_areas(score[:, c], y == c, weights) for c in range(n_classes)]
    missed: Array = 1 - np.where(shares > 0, shares * np.nan_to_num(areas), 0.0).sum(axis=0)
    return np.where((shares > 0).sum(axis=0) > 1, missed, np.nan)


def weighted_areas(score: Array, is_positive: NDArray[np.bool_], weights: Array) -> Array:
    """Return the area under the ROC curve in each bootstrap; nan if a class has no weight.

    Scores, shape (m,), are sorted once; a pair of equal scores counts half. Bootstraps, weights of
    shape (N, m), are contiguous in memory, so sums over rows run over whole lines.
    """
    columns, order = weights.T, np.argsort(score, kind="stable")
    positive, negative = order[is_positive[order]], order[~is_positive[order]]
    below = np.zeros((len(negative) + 1, len(weights)))  # weight of the first negatives
    np.cumsum(columns[negative], axis=0, out=below[1:])
    lower = np.searchsorted(score[negative], score[positive], "left")
    upper = np.searchsorted(score[negative], score[positive], "right")
    weighted = columns[positive]
    beaten = np.einsum("ij,ij->j", weighted, (below[lower] + below[upper]) / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return beaten / (weighted.sum(axis=0) * below[-1])


def missed_precisions(
    y: Targets, predictions: Predictions, n_classes: int, weights: Array
) -> Array:
    """Return 1 - average precision; with several classes, the mean over those with weight."""
    score = predictions.score
    if score is None:
        raise ValueError(f"the metric needs probabilities, and {predictions.why_no_probabilities}")
    classes = [1] if n_classes == 2 else range(n_classes)
    each = [weighted_precisions(score[:, c], y == c, weights) for c in classes]
    n_there = np.sum([weights[:, y == c].any(axis=1) for c in classes], axis=0)
    return 1 - np.sum(each, axis=0) / np.maximum(n_there, 1)


def weighted_precisions(score: Array, is_positive: NDArray[np.bool_], weights: Array) -> Array:
    """Return the average precision in each bootstrap, shape (N,); arguments as `weighted_areas`.

    Rows with equal scores share one threshold, so each counts the precision below the last of them.
    """
    order = np.argsort(-score, kind="stable")
    columns, hits, falling = weights.T[order], (weights * is_positive).T[order], -score[order]
    last = np.searchsorted(falling, falling, "right") - 1
    hit = np.cumsum(hits, axis=0)
    precision = _ratio(hit[last], np.cumsum(columns, axis=0)[last])
    return _ratio((hits * precision).sum(axis=0), hit[-1])


def is_quick(metric: Metric) -> bool:
    """Return whether the metric declares losses that cover all bootstraps at once."""
    return bool(metric.declared.bootstrap_losses or metric.declared.row_losses)


def weighted_losses(
    metric: Metric, y: Targets, predictions: Predictions, n_classes: int, weights: Array
) -> Array:
    """Return the losses of a metric that `is_quick` in all bootstraps, shape (N,).

    `weights` of shape (N, m) have rows that sum to 1.

    Raises:
        ValueError: If the metric needs probabilities and the predictions have none.
    """
    seen, predicted = metric.turned(y, predictions, n_classes)
    if metric.declared.bootstrap_losses:
        return loaded(metric.declared.bootstrap_losses)(seen, predicted, n_classes, weights)
    return weights @ loaded(metric.declared.row_losses)(seen, predicted)


_MOST_WEIGHTS = 4_000_000
"""Weights computed at a time (32 MB)."""


@dataclass(frozen=True)
class Resampling:
    """N bootstraps of the held-out examples of each fold.

    Attributes:
        targets: True classes or numbers by fold, shape (m,).
        counts: Number of times each example was drawn, by fold, shape (N, m).
    """

    metric: Metric
    n_classes: int
    targets: tuple[Targets, ...]
    counts: tuple[Counts, ...]

    @classmethod
    def of(
        cls, dataset: Dataset, split: Split, metric: Metric, bootstraps: Bootstraps, rng: Generator
    ) -> Self:
        """Draw bootstraps of a split, within each class unless the metric is a mean over rows."""
        rows = [split.held_out(fold) for fold in range(split.n_folds)]
        n_classes = len(dataset.classes)
        by_class = bool(n_classes) and not metric.declared.row_losses
        counts = tuple(
            _counts(dataset.y[held_out] if by_class else np.zeros(len(held_out)), bootstraps, rng)
            for held_out in rows
        )
        return cls(metric, n_classes, tuple(dataset.y[held_out] for held_out in rows), counts)

    def risks(self, predictions: Sequence[Predictions]) -> Array:
        """Return the loss of predictions by fold, averaged over the folds, shape (N,).

        If the metric is undefined in a bootstrap, the loss of the whole fold is used.
        """
        by_fold = [
            self._of_fold(y, counts, predicted)
            for y, counts, predicted in zip(self.targets, self.counts, predictions, strict=True)
        ]
        return np.mean(by_fold, axis=0)

    def _of_fold(self, y: Targets, counts: Counts, predicted: Predictions) -> Array:
        if not is_quick(self.metric):
            risks = np.array([self._on_repeated(y, drawn, predicted) for drawn in counts])
        else:
            size = max(1, _MOST_WEIGHTS // len(y))
            parts = [counts[i : i + size] for i in range(0, len(counts), size)]
            weights = (part / part.sum(axis=1, keepdims=True) for part in parts)
            losses = (
                weighted_losses(self.metric, y, predicted, self.n_classes, w) for w in weights
            )
            risks = np.concatenate(list(losses))
        if not np.isfinite(risks).all():
            whole = self.metric.loss(y, predicted, self.n_classes)
            risks = np.where(np.isfinite(risks), risks, whole)
        return risks

    def _on_repeated(self, y: Targets, drawn: Counts, predicted: Predictions) -> float:
        rows = np.repeat(np.arange(len(y)), drawn)
        try:
            return self.metric.loss(y[rows], predicted.take(rows), self.n_classes)
        except ValueError:  # undefined or not finite: the loss of the whole fold is used
            return float("nan")


def _counts(strata: Targets, bootstraps: Bootstraps, rng: Generator) -> Counts:
    """Return draws per row, shape (N, m), with replacement within each stratum."""
    counts = np.ones((bootstraps.n, len(strata)), dtype=np.uint16)
    if not bootstraps.share:
        return counts
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        n_draws = max(1, round(bootstraps.share * len(rows)))
        for drawn in counts:
            chosen = rng.integers(len(rows), size=n_draws)
            drawn[rows] = np.bincount(chosen, minlength=len(rows))
    return counts
