"""Ensembles of pipelines: greedy selection by held-out predictions, and the ensemble as a model.

Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble selection from libraries of models" (ICML
2004), as in Ram et al. (2020), appendix 8.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from prefect_tune.tasks.objective.metric import Predictions

__all__ = ["ClassEnsemble", "NumberEnsemble", "blend", "greedy_picks", "shares", "weights_of"]

_TIE = 1e-12


def shares(predictions: Predictions, n_classes: int) -> NDArray[np.float64]:
    """Return what a model contributes to an ensemble.

    Its probabilities, shape (n, c); its votes where it gives none; its numbers, shape (n, 1), where
    there are no classes.
    """
    if not n_classes:
        return np.asarray(predictions.label, dtype=np.float64)[:, None]
    score = predictions.score
    if score is not None and (score >= 0).all() and np.allclose(score.sum(axis=1), 1):
        return score
    votes: NDArray[np.float64] = np.eye(n_classes)[predictions.label]
    return votes


def blend(mean: NDArray[np.float64], n_classes: int) -> Predictions:
    """Predict from the weighted mean of what the members contribute."""
    if not n_classes:
        return Predictions(mean[:, 0])
    return Predictions(mean.argmax(axis=1).astype(np.int32), mean)


def greedy_picks(
    members: Sequence[NDArray[np.float64]], loss: Callable[[NDArray[np.float64]], float], size: int
) -> tuple[list[int], list[float]]:
    """Pick members with replacement, each the one that improves the ensemble so far most.

    Args:
        members: What each contributes, all of one shape; the first one is the best alone.
        loss: Loss of the mean of some of them.
        size: How many to pick at most.

    Returns:
        The picks by position up to the size that is best, and the ensemble's loss after each. Of
        equals, the first.
    """
    picks, losses = [0], [loss(members[0])]
    total = members[0].copy()
    while len(picks) < size:
        tried = np.array([loss((total + m) / (len(picks) + 1)) for m in members])
        best = int(np.argmax(tried <= tried.min() + _TIE))
        picks.append(best)
        losses.append(float(tried[best]))
        total = total + members[best]
    n = int(np.argmax(np.array(losses) <= min(losses) + _TIE)) + 1
    return picks[:n], losses[:n]


def weights_of(picks: Sequence[int]) -> Mapping[int, float]:
    """Return each picked member's share of the picks."""
    return {member: n / len(picks) for member, n in sorted(Counter(picks).items())}


class _Ensemble(BaseEstimator):
    """Fitted pipelines whose weighted mean predicts.

    Args:
        pipelines: The members.
        weights: Of each; together 1.
    """

    def __init__(self, pipelines: Sequence[Any], weights: Sequence[float]) -> None:
        self.pipelines = pipelines
        self.weights = weights

    def fit(self, X: Any, y: Any) -> "_Ensemble":
        """Fit all members again."""
        for pipeline in self.pipelines:
            pipeline.fit(X, y)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


class ClassEnsemble(ClassifierMixin, _Ensemble):
    """The mean of the probabilities of classifiers, or of their votes if they have none."""

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in order."""
        found: NDArray[Any] = np.unique(np.concatenate([p.classes_ for p in self.pipelines]))
        return found

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the shares of the classes, shape (n, c)."""
        classes = self.classes_
        mean: NDArray[np.float64] = np.zeros((len(X), len(classes)))
        for pipeline, weight in zip(self.pipelines, self.weights, strict=True):
            if hasattr(pipeline, "predict_proba"):
                columns = np.searchsorted(classes, pipeline.classes_)
                mean[:, columns] += weight * pipeline.predict_proba(X)
            else:
                votes = np.searchsorted(classes, pipeline.predict(X))
                mean[np.arange(len(votes)), votes] += weight
        return mean

    def predict(self, X: Any) -> NDArray[Any]:
        """Return predictions, shape (n,)."""
        found: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return found


class NumberEnsemble(RegressorMixin, _Ensemble):
    """The mean of the numbers of regressors."""

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions, shape (n,)."""
        numbers = [np.asarray(p.predict(X), dtype=np.float64).ravel() for p in self.pipelines]
        found: NDArray[np.float64] = np.average(numbers, axis=0, weights=self.weights)
        return found
