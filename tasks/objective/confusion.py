"""Losses of all bootstraps at once, for metrics that need only counts of the classes.

How often a class was predicted, was true, and was both says precision, recall and all that is made
of them; in a bootstrap these counts are sums of weights, three products of matrices.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.tasks.objective.metric import Predictions

__all__ = ["CONFUSIONS"]

Array = NDArray[np.float64]

_ZERO = 1e-12
"""Spreads below are those of a constant, but for rounding."""


@dataclass(frozen=True)
class _Shares:
    """Shares of the rows in each bootstrap, by class, each of shape (N, c).

    Attributes:
        true: Of the class.
        said: Predicted as the class.
        hit: Both.
    """

    true: Array
    said: Array
    hit: Array


def _shares(y: NDArray[Any], predictions: Predictions, n_classes: int, weights: Array) -> _Shares:
    true, said = (np.eye(n_classes)[labels] for labels in (y, predictions.label))
    return _Shares(weights @ true, weights @ said, weights @ (true * said))


def _ratio(part: Array, whole: Array) -> Array:
    """Return shares of something; 0 of nothing, as scikit-learn says."""
    found: Array = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return found


Rate = Callable[[Array, Array, Array], Array]
"""From hits, and what was predicted and was true, to a score of the same shape."""

_RATES: Mapping[str, Rate] = MappingProxyType(
    {
        "precision": lambda hit, said, true: _ratio(hit, said),  # noqa: ARG005
        "recall": lambda hit, said, true: _ratio(hit, true),  # noqa: ARG005
        "f1": lambda hit, said, true: _ratio(2 * hit, said + true),
        "jaccard": lambda hit, said, true: _ratio(hit, said + true - hit),
    }
)


def _binary(rate: Rate, of: _Shares) -> Array:
    return rate(of.hit, of.said, of.true)[:, 1]


def _macro(rate: Rate, of: _Shares) -> Array:
    is_there = of.said + of.true > 0
    mean: Array = (rate(of.hit, of.said, of.true) * is_there).sum(axis=1) / is_there.sum(axis=1)
    return mean


def _micro(rate: Rate, of: _Shares) -> Array:
    return rate(of.hit.sum(axis=1), of.said.sum(axis=1), of.true.sum(axis=1))


def _weighted(rate: Rate, of: _Shares) -> Array:
    mean: Array = (rate(of.hit, of.said, of.true) * of.true).sum(axis=1)
    return mean


_AVERAGES: Mapping[str, Callable[[Rate, _Shares], Array]] = MappingProxyType(
    {"": _binary, "_macro": _macro, "_micro": _micro, "_weighted": _weighted}
)


def _balanced_accuracy(of: _Shares) -> Array:
    mean: Array = _ratio(of.hit, of.true).sum(axis=1) / (of.true > 0).sum(axis=1)
    return mean


def _matthews(of: _Shares) -> Array:
    """Return the correlation of what was predicted with what was true (Gorodkin 2004)."""
    spread = (1 - (of.said**2).sum(axis=1)) * (1 - (of.true**2).sum(axis=1))
    shared = of.hit.sum(axis=1) - (of.said * of.true).sum(axis=1)
    is_constant = spread <= _ZERO
    scores: Array = np.where(is_constant, 0.0, shared / np.sqrt(np.where(is_constant, 1, spread)))
    return scores


_SCORES: Mapping[str, Callable[[_Shares], Array]] = MappingProxyType(
    {
        "balanced_accuracy": _balanced_accuracy,
        "matthews_corrcoef": _matthews,
        **{
            f"{name}{average}": partial(mean, rate)
            for name, rate in _RATES.items()
            for average, mean in _AVERAGES.items()
        },
    }
)


def _loss_of(
    score: Callable[[_Shares], Array],
) -> Callable[[NDArray[Any], Predictions, int, Array], Array]:
    return lambda y, predictions, n_classes, weights: (
        1 - score(_shares(y, predictions, n_classes, weights))
    )


CONFUSIONS = MappingProxyType({name: _loss_of(score) for name, score in _SCORES.items()})
"""From true classes, predictions, their number and weights (N, m) to losses, shape (N,), by name.

Where a metric is of one class of two, it is that in position 1.
"""
