"""Two steps looked ahead: what a candidate gains, and what the best one after it gains.

Jiang et al. 2020 (MS-EI) with two steps, over a finite set of candidates: the outcome of the first
one is a few quadrature points, and the second is the best of all given each.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

__all__ = ["two_step_improvement"]

Array = NDArray[np.floating[Any]]

_NODES = 25
_REACH = 4.5
"""Deviations up to which outcomes are looked at."""
_MOST = 32
_LEAST_VARIANCE = 1e-10


def two_step_improvement(
    mean: Array,
    variance: Array,
    covariance: Callable[[int], Array],
    best: float,
    allowed: NDArray[np.bool_],
) -> Array:
    """Return the expected improvement of a candidate and of the best one after it, shape (m,).

    Scores are the higher the better. Only the most promising by one step are looked at; others have
    -inf.

    Args:
        mean: Of the candidates, shape (m,).
        variance: Likewise.
        covariance: From a candidate's number to its covariances with all, shape (m,).
        best: Score that is to be improved on.
        allowed: Which candidates there are, shape (m,).
    """
    # The best of the others has kinks in the outcome, for which Gauss's nodes would be too few.
    nodes = np.linspace(-_REACH, _REACH, _NODES)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    one_step = np.where(allowed, _improvement(mean, variance, best), -np.inf)
    values = np.full(len(mean), -np.inf)
    for j in np.argsort(-one_step, kind="stable")[: min(_MOST, int(allowed.sum()))]:
        column = covariance(int(j))
        gain = column / np.sqrt(max(column[j], _LEAST_VARIANCE))
        left = variance - gain**2
        others = allowed.copy()
        others[j] = False
        values[j] = one_step[j]
        if others.any():
            after = [
                _improvement(mean + z * gain, left, max(best, mean[j] + z * gain[j]))[others].max()
                for z in nodes
            ]
            values[j] += weights @ np.array(after)
    return values


def _improvement(mean: Array, variance: Array, best: float) -> Array:
    deviation = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
    u = (mean - best) / deviation
    improvement: Array = deviation * (u * ndtr(u) + np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi))
    return improvement
