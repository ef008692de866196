"""Agnostic Bayes: how often each model is the best of all, over bootstraps of the examples."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.ties import is_least

__all__ = ["best_frequencies"]


def best_frequencies(risks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p_h*: the share of the bootstraps in which each model has the least risk.

    The posterior probability that a model is the best one (Lacoste et al. 2014, equation 5, with
    bootstraps for the prior); models that tie share a bootstrap equally.

    Args:
        risks: Of n models in N bootstraps, shape (n, N), finite.

    Returns:
        Shape (n,), together 1.
    """
    is_best = is_least(risks)
    frequencies: NDArray[np.float64] = (is_best / is_best.sum(axis=0)).mean(axis=1)
    return frequencies
