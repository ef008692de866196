"""Risks: the loss of a model in each bootstrap of the held-out examples.

Bootstraps are drawn once, from the study's seed, and are the same for all of its trials. Under
cross-validation each example is judged by the model that did not learn from it; bootstraps are
drawn within each fold, so that folds count alike as they do in the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.split import Split
from prefect_tune.tasks.objective.metric import Metric, Predictions
from prefect_tune.tasks.objective.weighted import is_quick, weighted_losses

Array = NDArray[np.float64]

_MOST_WEIGHTS = 4_000_000
"""Weights that are made at a time, 32 MB."""


@dataclass(frozen=True)
class Resampling:
    """N bootstraps of the held-out examples of each fold.

    Attributes:
        metric: What is computed in each.
        n_classes: 0 for numbers.
        targets: By fold, the true classes or numbers, shape (m,).
        counts: By fold, how often each example was drawn, shape (N, m).
    """

    metric: Metric
    n_classes: int
    targets: tuple[NDArray[Any], ...]
    counts: tuple[NDArray[np.uint16], ...]

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        split: Split,
        metric: Metric,
        bootstraps: Bootstraps,
        rng: np.random.Generator,
    ) -> Self:
        """Draw bootstraps of a split.

        Where the metric is no mean over rows they are drawn within each class too, so that none of
        them lacks one.

        Args:
            dataset: The rows.
            split: Their folds.
            metric: What is computed.
            bootstraps: How many, and how large.
            rng: Source of the draws.
        """
        rows = [split.held_out(fold) for fold in range(split.n_folds)]
        n_classes = len(dataset.classes)
        by_class = bool(n_classes) and not metric.declared.row_losses
        counts = tuple(
            _counts(dataset.y[held_out] if by_class else np.zeros(len(held_out)), bootstraps, rng)
            for held_out in rows
        )
        return cls(metric, n_classes, tuple(dataset.y[held_out] for held_out in rows), counts)

    def risks(self, predictions: Sequence[Predictions]) -> Array:
        """Return the mean over the folds of the loss in each bootstrap, shape (N,).

        Where the metric is not defined in a bootstrap, the loss of the whole fold stands for it.

        Args:
            predictions: Of the held-out examples, by fold.
        """
        by_fold = [
            self._of_fold(y, counts, predicted)
            for y, counts, predicted in zip(self.targets, self.counts, predictions, strict=True)
        ]
        return np.mean(by_fold, axis=0)

    def _of_fold(
        self, y: NDArray[Any], counts: NDArray[np.uint16], predicted: Predictions
    ) -> Array:
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

    def _on_repeated(
        self, y: NDArray[Any], drawn: NDArray[np.uint16], predicted: Predictions
    ) -> float:
        rows, score = np.repeat(np.arange(len(y)), drawn), predicted.score
        repeated = Predictions(predicted.label[rows], None if score is None else score[rows])
        try:
            return self.metric.loss(y[rows], repeated, self.n_classes)
        except ValueError:  # not defined, or not finite; the whole fold's stands for it
            return float("nan")


def _counts(
    strata: NDArray[Any], bootstraps: Bootstraps, rng: np.random.Generator
) -> NDArray[np.uint16]:
    """Return how often each row is drawn, shape (N, m), with replacement within each stratum."""
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
