"""Losses of predictions, and risks: losses in bootstraps of the held-out examples.

Bootstraps are drawn once from the study's seed and shared by all trials. Each bootstrap is drawn
within each fold, so all folds have equal weight, as in the loss.

A bootstrap is a row of weights that sum to 1, so many metrics need no loop over bootstraps. If the
loss is a mean over rows, one matrix product gives all bootstraps. Precision, recall and similar
scores follow from weighted class counts. For the area under the curve, scores are sorted once
(Lacoste et al. 2014).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.utils.metaestimators import available_if

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.metric import CONFUSION_METRICS, Metric, MetricDeclaration
from prefect_tune.tasks.objective.predictions import Array, Predictions

Targets = NDArray[Any]
"""True classes or numbers, shape (m,)."""
Counts = NDArray[np.uint16]
"""Number of draws of each example, shape (N, m)."""

_ZERO = 1e-12
"""Spread below which values count as constant."""


def _ratio(part: Array, whole: Array) -> Array:
    """Return `part / whole`; 0 if `whole` is 0, as in scikit-learn."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


Rate = Callable[[Array, Array, Array], Array]
"""Function of hits, predicted shares and true shares that returns a score of the same shape."""

_RATES: Mapping[str, Rate] = {
    "precision": lambda hit, predicted, true: _ratio(hit, predicted),  # noqa: ARG005
    "recall": lambda hit, predicted, true: _ratio(hit, true),  # noqa: ARG005
    "f1": lambda hit, predicted, true: _ratio(2 * hit, predicted + true),
    "jaccard": lambda hit, predicted, true: _ratio(hit, predicted + true - hit),
}


def _confusion_loss(
    name: str, y: Targets, predictions: Predictions, n_classes: int, weights: Array
) -> Array:
    """Return a loss, shape (N,), that depends only on weighted counts of classes."""
    is_true, is_predicted = (np.eye(n_classes)[labels] for labels in (y, predictions.label))
    true, predicted = weights @ is_true, weights @ is_predicted
    hit, is_there = weights @ (is_true * is_predicted), true > 0
    if name == "matthews_corrcoef":  # Gorodkin 2004
        spread = (1 - (predicted**2).sum(axis=1)) * (1 - (true**2).sum(axis=1))
        shared = hit.sum(axis=1) - (predicted * true).sum(axis=1)
        is_constant = spread <= _ZERO
        return 1 - np.where(is_constant, 0.0, shared / np.sqrt(np.where(is_constant, 1, spread)))
    if name == "balanced_accuracy":
        return 1 - _ratio(hit, true).sum(axis=1) / is_there.sum(axis=1)
    rate, _, average = name.partition("_")
    if average == "micro":
        return 1 - _RATES[rate](*(shares.sum(axis=1) for shares in (hit, predicted, true)))
    by_class = _RATES[rate](hit, predicted, true)
    if average == "macro":
        return 1 - (by_class * is_there).sum(axis=1) / is_there.sum(axis=1)
    return 1 - ((by_class * true).sum(axis=1) if average else by_class[:, 1])


CONFUSIONS = SimpleNamespace(**{name: partial(_confusion_loss, name) for name in CONFUSION_METRICS})
"""Functions by metric, of true classes, predictions, the number of classes and weights (N, m), that
return losses, shape (N,). For two classes, the class in position 1 is positive.
"""


def guesses_of(y: Targets, n_classes: int) -> list[Predictions]:
    """Return candidates for the best constant prediction."""
    if not n_classes:
        return [Predictions(np.full(len(y), guess(y))) for guess in (np.mean, np.median)]
    shares = np.bincount(y, minlength=n_classes) / len(y)
    score = np.tile(shares, (len(y), 1))
    # For metrics such as f1, a constant positive prediction may be best.
    labels = (0, 1) if n_classes == 2 else (np.argmax(shares),)
    return [Predictions(np.full(len(y), label, dtype=np.int32), score) for label in labels]


def percent_wrong(y: Targets, predictions: Predictions, _: int) -> float:
    """Return the percentage of wrong predictions."""
    return float(100 * np.mean(predictions.label != y))


def missed_area(y: Targets, predictions: Predictions, n_classes: int) -> float:
    """Return 1 - AUROC; for several classes, one-vs-rest weighted by class frequencies."""
    score = predictions.outputs(n_classes)
    if n_classes == 2:
        return 1 - float(roc_auc_score(y, score[:, 1]))
    shares = np.bincount(y, minlength=n_classes) / len(y)
    areas = [roc_auc_score(y == c, score[:, c]) if shares[c] else 0.0 for c in range(n_classes)]
    return 1 - float(shares @ areas)


def loss_of_scorer(
    declared: MetricDeclaration, y: Targets, predictions: Predictions, n_classes: int
) -> float:
    """Return the loss of a scikit-learn score: the distance from the best score."""
    if n_classes and declared.is_quick and len(np.unique(y)) < n_classes:
        weights = np.full((1, len(y)), 1 / len(y))  # scorers need rows of all classes
        return float(Metric(declared).weighted_losses(y, predictions, n_classes, weights)[0])
    model = _Classifier(predictions, n_classes) if n_classes else _Regressor(predictions)
    try:
        score = get_scorer(declared.score)(model, np.empty((len(y), 1)), y)
    except AttributeError as error:
        why = predictions.why_no_probabilities
        raise ValueError(f"{declared.name} needs probabilities, and {why}") from error
    except (ValueError, ZeroDivisionError) as error:  # all class weights are 0
        raise ValueError(f"{declared.name} is undefined on these {len(y)} rows: {error}") from error
    return declared.best_score - float(score)


class _Regressor(RegressorMixin, BaseEstimator):
    """A fitted regressor that returns given predictions, for scikit-learn's scorers."""

    def __init__(self, predictions: Predictions) -> None:
        self.predictions = predictions
        self.fitted_ = True

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ARG002
        return self.predictions.label


class _Classifier(ClassifierMixin, BaseEstimator):
    """A fitted classifier of class positions that returns given predictions."""

    def __init__(self, predictions: Predictions, n_classes: int) -> None:
        self.predictions, self.n_classes = predictions, n_classes
        self.classes_ = np.arange(n_classes)

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ARG002
        return self.predictions.label

    @available_if(lambda self: self.predictions.score is not None)  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:  # noqa: ARG002
        score = self.predictions.score
        return score if score is None or self.n_classes != 2 else score[:, 1]

    @available_if(lambda self: self.predictions.are_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:  # noqa: ARG002
        return self.predictions.score


def one_if_wrong(y: Targets, predictions: Predictions) -> Array:
    """Return 1 for each wrong row and 0 for each correct row."""
    return (predictions.label != y).astype(np.float64)


def percent_if_wrong(y: Targets, predictions: Predictions) -> Array:
    """Return 100 for each wrong row and 0 for each correct row."""
    return 100 * one_if_wrong(y, predictions)


def absolute(y: Targets, predictions: Predictions) -> Array:
    """Return the absolute error of each row."""
    return np.abs(predictions.label - y)


def squared(y: Targets, predictions: Predictions) -> Array:
    """Return the squared error of each row."""
    return (predictions.label - y) ** 2


def surprise(y: Targets, predictions: Predictions) -> Array:
    """Return the negative logarithm of each row's probability of the true class."""
    score = _probabilities(predictions)
    eps = np.finfo(score.dtype).eps
    return -np.log(np.clip(score[np.arange(len(y)), y], eps, 1 - eps))


def brier(y: Targets, predictions: Predictions) -> Array:
    """Return the Brier score of each row, halved for two classes."""
    score = _probabilities(predictions)
    distances: Array = ((score - np.eye(score.shape[1])[y]) ** 2).sum(axis=1)
    return distances / 2 if score.shape[1] == 2 else distances


def _probabilities(predictions: Predictions) -> Array:
    if predictions.score is None or not predictions.are_probabilities:
        raise ValueError(f"the metric needs probabilities, and {predictions.why_no_probabilities}")
    return predictions.score


def root_squared(y: Targets, predictions: Predictions, _: int, weights: Array) -> Array:
    """Return the root of the mean squared error of each bootstrap."""
    return np.sqrt(weights @ squared(y, predictions))


def unexplained(y: Targets, predictions: Predictions, _: int, weights: Array) -> Array:
    """Return 1 - R2 of each bootstrap: squared errors over squared distances from the mean."""
    centered = y - y.mean()
    spread = weights @ centered**2 - (weights @ centered) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return (weights @ squared(y, predictions)) / spread


def missed_areas(y: Targets, predictions: Predictions, n_classes: int, weights: Array) -> Array:
    """Return 1 - AUROC; for several classes, one-vs-rest weighted by class frequencies."""
    score = predictions.outputs(n_classes)
    if n_classes == 2:
        return 1 - weighted_areas(score[:, 1], y == 1, weights)
    shares = np.stack([weights[:, y == c].sum(axis=1) for c in range(n_classes)])
    areas = [weighted_areas(score[:, c], y == c, weights) for c in range(n_classes)]
    missed: Array = 1 - np.where(shares > 0, shares * np.nan_to_num(areas), 0.0).sum(axis=0)
    return np.where((shares > 0).sum(axis=0) > 1, missed, np.nan)


def missed_mean_areas(
    y: Targets, predictions: Predictions, n_classes: int, weights: Array
) -> Array:
    """Return 1 - the mean one-vs-rest AUROC over classes that occur."""
    score = _probabilities(predictions)
    areas = [weighted_areas(score[:, c], y == c, weights) for c in range(n_classes)]
    with np.errstate(invalid="ignore"):
        return 1 - np.nansum(areas, axis=0) / np.sum(np.isfinite(areas), axis=0)


def weighted_areas(score: Array, is_positive: NDArray[np.bool_], weights: Array) -> Array:
    """Return the area under the ROC curve in each bootstrap; nan if a class does not occur.

    Scores, shape (m,), are sorted once; a pair of equal scores counts as half. Weights, shape (N,
    m), are contiguous by bootstrap, so sums run over contiguous memory.
    """
    columns, order = weights.T, np.argsort(score, kind="stable")
    positive, negative = order[is_positive[order]], order[~is_positive[order]]
    below = np.zeros((len(negative) + 1, len(weights)))  # weight of the leading negatives
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
    """Return 1 - average precision; for several classes, the mean over classes that occur."""
    score = predictions.score
    if score is None:
        raise ValueError(f"the metric needs probabilities, and {predictions.why_no_probabilities}")
    classes = [1] if n_classes == 2 else range(n_classes)
    each = [weighted_precisions(score[:, c], y == c, weights) for c in classes]
    n_there = np.sum([weights[:, y == c].any(axis=1) for c in classes], axis=0)
    return 1 - np.sum(each, axis=0) / np.maximum(n_there, 1)


def weighted_precisions(score: Array, is_positive: NDArray[np.bool_], weights: Array) -> Array:
    """Return the average precision in each bootstrap, shape (N,). See `weighted_areas`.

    Rows with equal scores share a threshold, so they share the precision at the last of these rows.
    """
    order = np.argsort(-score, kind="stable")
    falling, is_hit = -score[order], is_positive[order]
    weights = weights[:, order]
    hits, of_hits = weights[:, is_hit], falling[is_hit]
    last, last_hit = (np.searchsorted(of, of_hits, "right") - 1 for of in (falling, of_hits))
    hit = np.cumsum(hits, axis=1)
    precision = _ratio(hit[:, last_hit], np.cumsum(weights, axis=1)[:, last])
    return _ratio((hits * precision).sum(axis=1), hits.sum(axis=1))


MOST_WEIGHTS = 4_000_000
"""Number of weights computed at once (32 MB)."""


def losses_of_draws(
    metric: Metric, y: Targets, predictions: Predictions, n_classes: int, counts: NDArray[Any]
) -> Array:
    """Return the loss in each draw, shape (N,); nan if undefined.

    `counts`, shape (N, m), tells how often, or whether, each row was drawn.
    """
    if metric.declared.is_quick:
        size = max(1, MOST_WEIGHTS // len(y))
        parts = [counts[i : i + size] for i in range(0, len(counts), size)]
        weights = (part / part.sum(axis=1, keepdims=True) for part in parts)
        return np.concatenate(
            [metric.weighted_losses(y, predictions, n_classes, each) for each in weights]
        )
    losses = np.full(len(counts), np.nan)
    for i, drawn in enumerate(counts):
        rows = np.repeat(np.arange(len(y)), drawn)
        with suppress(ValueError):
            losses[i] = metric.loss(y[rows], predictions.take(rows), n_classes)
    return losses


@dataclass(frozen=True)
class Resampling:
    """N bootstraps of the held-out examples of each fold.

    Attributes:
        targets: True classes or numbers by fold, shape (m,).
        counts: Number of draws of each example, by fold, shape (N, m).
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
        """Return the risk in each bootstrap, shape (N,): the loss averaged over folds.

        If the metric is undefined in a bootstrap of a fold, the loss of the whole fold is used.
        """
        by_fold = []
        for y, counts, predicted in zip(self.targets, self.counts, predictions, strict=True):
            risks = losses_of_draws(self.metric, y, predicted, self.n_classes, counts)
            if not np.isfinite(risks).all():
                whole = self.metric.loss(y, predicted, self.n_classes)
                risks = np.where(np.isfinite(risks), risks, whole)
            by_fold.append(risks)
        return np.mean(by_fold, axis=0)


def _counts(strata: Targets, bootstraps: Bootstraps, rng: Generator) -> Counts:
    """Draw with replacement within each stratum; return the draws per row, shape (N, m)."""
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
