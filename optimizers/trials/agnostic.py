"""Agnostic Bayes: how often each model is the best of all, over bootstraps of the examples."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.losses import is_least, rounding_of


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
    return (is_best / is_best.sum(axis=0)).mean(axis=1)


def frequencies_of_few(risks: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return p_h* of an ensemble of so many models at most, 0 of all others.

    Models that are alike share their bootstraps, so that each of them is light however often one of
    them is the best: the heaviest models alone would be those that have no like. Members are
    therefore picked one by one, first the one with the least mean risk, then always the one that is
    the best most often among those picked and itself, as in the authors' code
    (recursix/spearmint-salad, greedy.py); the weights are p_h* among them. Of equals, the first.

    Args:
        risks: Of n models in N bootstraps, shape (n, N), finite.
        most: How many models may weigh anything.

    Returns:
        Shape (n,), together 1; `best_frequencies` where so few are ever the best.

    Raises:
        ValueError: If no model may.
    """
    if most < 1:
        raise ValueError(f"an ensemble has at least 1 model; got {most}")
    frequencies = best_frequencies(risks)
    if np.count_nonzero(frequencies) <= most:
        return frequencies
    tie, picked = rounding_of(risks), [int(np.argmin(risks.mean(axis=1)))]
    while len(picked) < most:
        least = risks[picked].min(axis=0)
        n_best = (risks[picked] <= least + tie).sum(axis=0)
        wins, ties = risks < least - tie, np.abs(risks - least) <= tie
        own = (wins + ties / (n_best + 1)).mean(axis=1)
        own[picked] = -1.0
        picked.append(int(np.argmax(own)))
    kept = np.zeros(len(risks))
    kept[picked] = best_frequencies(risks[picked])
    return kept
