"""The losses that models are fitted to, with an explicit rule for failed trials.

Losses that differ only by rounding are equal. Agnostic Bayes counts how often each model is the
best of all, over bootstraps of the examples.
"""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import FailureCost, Objective
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial


def imputed_losses(
    history: History, objective: Objective, rule: FailureCost
) -> tuple[list[Trial], Array]:
    """Return complete and failed trials in the order of asking, and their losses, shape (n,).

    Without a bound, the worst finished loss counts.
    """
    trials = [t for t in history if t.state in (TrialState.COMPLETE, TrialState.FAILED)]
    failed = float(max(history.losses, default=0.0))
    if rule == "bound" and np.isfinite(objective.upper):
        failed = objective.upper
    return trials, np.array([failed if t.loss is None else t.loss for t in trials])


def log_losses(losses: Array, objective: Objective) -> Array:
    """Return ln of the distance from the least possible loss, offset by 1 % of the median."""
    if not np.isfinite(objective.lower) or not len(losses):
        return losses
    distance = np.maximum(losses - objective.lower, 0.0)
    typical = float(np.median(distance)) or float(distance.max())
    return np.log(distance + 0.01 * typical) if typical > 0 else losses


_ROUNDING = 1e-12
"""Relative rounding of a sum over any number of rows."""


def is_least(losses: Array) -> NDArray[np.bool_]:
    """Return which losses, (n,) or (n, N), are the least along the first axis, ties included."""
    return losses <= losses.min(axis=0) + rounding_of(losses)


def rounding_of(losses: Array) -> Array:
    """Return the tolerance, shape () or (N,), for equal losses of n models, (n,) or (n, N)."""
    return np.asarray(_ROUNDING * np.median(np.abs(losses), axis=0))


def best_frequencies(risks: Array) -> NDArray[np.float64]:
    """Return p_h*, shape (n,): the share of bootstraps in which each model has the least risk.

    It is the posterior probability that a model is the best (Lacoste et al. 2014, equation 5, with
    bootstraps for the prior). Ties share a bootstrap equally. `risks` of n models in N bootstraps
    are finite, shape (n, N).
    """
    is_best = is_least(risks)
    return (is_best / is_best.sum(axis=0)).mean(axis=1)


def frequencies_of_few(risks: Array, most: int) -> NDArray[np.float64]:
    """Return p_h* of an ensemble of at most `most` models, 0 for all others, shape (n,).

    Similar models share their bootstraps and so have small weights. The largest weights alone would
    select models unlike any other. Members are therefore picked one by one. The first has the least
    mean risk. Each next one is most often the best among all members and itself, as in the authors'
    code (recursix/spearmint-salad, greedy.py). Weights are p_h* among the members.
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
