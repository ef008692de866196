"""Metrics at work: losses of predictions, and the loss of guessing; see `declaration`."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.utils.metaestimators import available_if

from prefect_tune.optimizers.plugins import loaded
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.objective.declaration import METRICS, MetricDeclaration, Target
from prefect_tune.tasks.objective.predictions import Array, Predictions

__all__ = ["Metric", "Predictions", "metric_named"]

Loss = Callable[[NDArray[Any], Predictions, int], float]
"""Maps true classes or numbers, predictions and the number of classes to a loss."""


@dataclass(frozen=True)
class Metric:
    """A measure of predictions as a loss, with `positive` the position of the positive class."""

    declared: MetricDeclaration
    positive: int = 1

    @property
    def name(self) -> str:
        """Word after `--metric`."""
        return self.declared.name

    @property
    def target(self) -> Target:
        """Kind of target that the metric judges."""
        return self.declared.target

    def loss(self, y: NDArray[Any], predictions: Predictions, n_classes: int) -> float:
        """Return the loss of predictions of n rows; `n_classes` is 0 for numbers.

        Raises:
            ValueError: If the metric is undefined for these rows, or the scores are not finite.
        """
        y, predictions = self.turned(y, predictions, n_classes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the loss already reflects classes never predicted
            loss = _loss_of(self.declared)(y, predictions, n_classes)
        if not np.isfinite(loss):
            raise ValueError(f"{self.name} is {loss} on {len(y)} held-out rows")
        return loss

    def weighted_losses(
        self, y: NDArray[Any], predictions: Predictions, n_classes: int, weights: Array
    ) -> Array:
        """Return the losses of a metric that `is_quick` in all bootstraps, shape (N,).

        `weights` of shape (N, m) have rows that sum to 1.

        Raises:
            ValueError: If the metric needs probabilities and the predictions have none.
        """
        y, predictions = self.turned(y, predictions, n_classes)
        return _weighted_losses(self.declared, y, predictions, n_classes, weights)

    def score(self, loss: float) -> float:
        """Return the score of a loss in scikit-learn's sense; larger is better.

        >>> metric_named("error").score(5.0), metric_named("r2").score(0.25)
        (0.95, 0.75)
        """
        return self.declared.score_of(loss)

    def turned(
        self, y: NDArray[Any], predictions: Predictions, n_classes: int
    ) -> tuple[NDArray[Any], Predictions]:
        """Return the true values and predictions, with the positive class of two in position 1."""
        if n_classes != 2 or self.positive == 1:
            return y, predictions
        score = predictions.score
        turned = None if score is None else np.ascontiguousarray(score[:, ::-1])
        return 1 - y, Predictions(1 - predictions.label, turned)

    def best_guess(self, y: NDArray[Any], n_classes: int) -> Predictions:
        """Return the constant predictions of n rows with the smallest loss.

        Raises:
            ValueError: If the metric is undefined for these rows.
        """
        return min(guesses_of(y, n_classes), key=lambda guess: self.loss(y, guess, n_classes))

    def objective(self, y: NDArray[Any], n_classes: int) -> Objective:
        """Return the metric with the loss of the best guess; raises BadInput if undefined here."""
        try:
            chance = self.loss(y, self.best_guess(y, n_classes), n_classes)
        except ValueError as error:
            of = f"{n_classes} classes" if n_classes else "numbers"
            raise BadInput(
                f"--metric {self.name} is not defined for these {of}: {error}"
            ) from error
        declared = self.declared
        return Objective(self.name, declared.unit, declared.lower, declared.upper, chance)


def metric_named(name: str, positive: int = 1) -> Metric:
    """Return a metric by name, with the position of the positive class; may raise UnknownName."""
    return Metric(METRICS.named(name), positive)


@cache
def _loss_of(declared: MetricDeclaration) -> Loss:
    if declared.loss:
        return loaded(declared.loss)
    if declared.score:
        return partial(_loss_of_scorer, declared)
    row_losses = loaded(declared.row_losses)
    return lambda y, predictions, n_classes: float(np.mean(row_losses(y, predictions)))  # noqa: ARG005


def _weighted_losses(
    declared: MetricDeclaration,
    y: NDArray[Any],
    predictions: Predictions,
    n_classes: int,
    weights: Array,
) -> Array:
    if declared.bootstrap_losses:
        return loaded(declared.bootstrap_losses)(y, predictions, n_classes, weights)
    return weights @ loaded(declared.row_losses)(y, predictions)


def guesses_of(y: NDArray[Any], n_classes: int) -> list[Predictions]:
    """Return constant predictions derived from the target alone."""
    if not n_classes:
        return [Predictions(np.full(len(y), guess(y))) for guess in (np.mean, np.median)]
    shares = np.bincount(y, minlength=n_classes) / len(y)
    score = np.tile(shares, (len(y), 1))
    # For scores of a positive class, such as f1, always predicting the rare class may be best.
    labels = (0, 1) if n_classes == 2 else (np.argmax(shares),)
    return [Predictions(np.full(len(y), label, dtype=np.int32), score) for label in labels]


def percent_wrong(y: NDArray[Any], predictions: Predictions, n_classes: int) -> float:  # noqa: ARG001
    """Return the share of wrong predictions, in percent."""
    return float(100 * np.mean(predictions.label != y))


def missed_area(y: NDArray[Any], predictions: Predictions, n_classes: int) -> float:
    """Return 1 - AUROC; with several classes, one against the rest, weighted by class shares."""
    score = predictions.score
    if score is None:
        score = np.eye(n_classes)[predictions.label]
    if n_classes == 2:
        return 1 - float(roc_auc_score(y, score[:, 1]))
    shares = np.bincount(y, minlength=n_classes) / len(y)
    areas = [roc_auc_score(y == c, score[:, c]) if shares[c] else 0.0 for c in range(n_classes)]
    return 1 - float(shares @ areas)


def _loss_of_scorer(
    declared: MetricDeclaration, y: NDArray[Any], predictions: Predictions, n_classes: int
) -> float:
    """Return the distance of a scikit-learn score from its best value."""
    if n_classes and declared.is_quick and len(np.unique(y)) < n_classes:
        weights = np.full((1, len(y)), 1 / len(y))  # a scorer needs rows of all classes
        return float(_weighted_losses(declared, y, predictions, n_classes, weights)[0])
    model = _Classifier(predictions, n_classes) if n_classes else _Regressor(predictions)
    try:
        score = get_scorer(declared.score)(model, np.empty((len(y), 1)), y)
    except AttributeError as error:
        why = predictions.why_no_probabilities
        raise ValueError(f"{declared.name} needs probabilities, and {why}") from error
    except (ValueError, ZeroDivisionError) as error:  # every class weight is 0
        raise ValueError(
            f"{declared.name} is not defined on these {len(y)} rows: {error}"
        ) from error
    return declared.best_score - float(score)


class _Regressor(RegressorMixin, BaseEstimator):
    """A fitted model that repeats given predictions, for scikit-learn's scorers."""

    def __init__(self, predictions: Predictions) -> None:
        self.predictions = predictions
        self.fitted_ = True

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: ARG002
        return self.predictions.label


class _Classifier(ClassifierMixin, BaseEstimator):
    """A fitted classifier of class positions that repeats given predictions."""

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
