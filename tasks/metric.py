"""Metrics: a name, a unit, bounds, a loss to minimise, and the loss of chance."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from prefect_tune.optimizers.naming import UnknownName
from prefect_tune.optimizers.optimizer import Objective

__all__ = ["METRICS", "Metric", "Predictions", "metric_named"]


@dataclass(frozen=True)
class Predictions:
    """What a model says about n rows.

    Attributes:
        label: Position of the predicted class, shape (n,).
        score: Probability of each class, shape (n, c), or values that order rows the same way;
            None when the model gives neither.
    """

    label: NDArray[np.int32]
    score: NDArray[np.float64] | None = None


Loss = Callable[[NDArray[np.int32], Predictions, int], float]
"""From true classes, predictions and the number of classes to a loss."""


@dataclass(frozen=True)
class Metric:
    """How good predictions are, as a loss to minimise.

    Attributes:
        name: What `--metric` calls it.
        unit: Unit of the loss.
        lower: Smallest loss possible.
        upper: Largest loss possible.
        compute: Computes it.
        chance: Loss of the best guess that does not look at features, from the classes' counts.
    """

    name: str
    unit: str
    lower: float
    upper: float
    compute: Loss
    chance: Callable[[NDArray[np.int_]], float]

    def loss(self, y: NDArray[np.int32], predictions: Predictions, n_classes: int) -> float:
        """The loss of predictions.

        Args:
            y: True classes, shape (n,).
            predictions: For the same rows.
            n_classes: How many classes there are, in these rows or not.

        Raises:
            ValueError: If the metric is not defined for these rows, or the scores are not finite.
        """
        loss = self.compute(y, predictions, n_classes)
        if not np.isfinite(loss):
            raise ValueError(f"{self.name} is {loss} on {len(y)} held-out rows")
        return loss

    def objective(self, y: NDArray[np.int32]) -> Objective:
        """What a method may know of it on this data."""
        chance = self.chance(np.bincount(y))
        return Objective(self.name, self.unit, self.lower, self.upper, chance)


def _error(y: NDArray[np.int32], predictions: Predictions, n_classes: int) -> float:  # noqa: ARG001
    return float(100 * np.mean(predictions.label != y))


def _auroc(y: NDArray[np.int32], predictions: Predictions, n_classes: int) -> float:
    score = predictions.score
    if score is None:
        score = np.eye(n_classes)[predictions.label]
    if n_classes == 2:
        return 1 - float(roc_auc_score(y, score[:, 1]))
    shares = np.bincount(y, minlength=n_classes) / len(y)
    areas = [roc_auc_score(y == c, score[:, c]) if shares[c] else 0.0 for c in range(n_classes)]
    return 1 - float(shares @ areas)


METRICS: Mapping[str, Metric] = {
    m.name: m
    for m in (
        Metric(
            "error",
            "percent",
            0,
            100,
            _error,
            lambda counts: 100 * (1 - counts.max() / counts.sum()),
        ),
        Metric("auroc", "1 - area", 0, 1, _auroc, lambda _: 0.5),
    )
}


def metric_named(name: str) -> Metric:
    """The metric of that name.

    Raises:
        UnknownName: If there is none.
    """
    if name not in METRICS:
        raise UnknownName("metric", name, METRICS)
    return METRICS[name]
