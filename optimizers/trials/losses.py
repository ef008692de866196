"""The losses that models are fitted on: failed trials have one too, by a rule that is stated.

Losses that differ by no more than rounding are equal. Agnostic Bayes counts how often each model is
the best of all, over bootstraps of the examples.
"""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import FailureCost, Objective
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial


def failure_loss(history: History, objective: Objective, rule: FailureCost) -> float:
    """Return the loss of a failed trial; the worst finished one where the rule has no number."""
    finished = history.losses
    worst = float(finished.max()) if len(finished) else 0.0
    if rule == "bound" and np.isfinite(objective.upper):
        return objective.upper
    return objective.chance if rule == "chance" and objective.chance is not None else worst


def told_losses(
    history: History, objective: Objective, rule: FailureCost
) -> tuple[list[Trial], Array]:
    """Return complete and failed trials in the order of asking, and their losses, shape (n,)."""
    trials = [t for t in history if t.state in (TrialState.COMPLETE, TrialState.FAILED)]
    failed = failure_loss(history, objective, rule)
    return trials, np.array([failed if t.loss is None else t.loss for t in trials])


def log_losses(losses: Array, objective: Objective) -> Array:
    """Return ln of the distance from the smallest loss possible, if there is one, shape (n,).

    A hundredth of the median distance is added, or a perfect loss would be infinitely far from all
    others.
    """
    if not np.isfinite(objective.lower) or not len(losses):
        return losses
    distance = np.maximum(losses - objective.lower, 0.0)
    typical = float(np.median(distance)) or float(distance.max())
    return np.log(distance + 0.01 * typical) if typical > 0 else losses


_ROUNDING = 1e-12
"""Of a sum over any number of rows, as a share."""


def is_least(losses: Array) -> NDArray[np.bool_]:
    """Return which losses are the least along the first axis, ties included, of the same shape.

    Args:
        losses: Of n models, shape (n,) or (n, N), in any unit.
    """
    return losses <= losses.min(axis=0) + rounding_of(losses)


def rounding_of(losses: Array) -> Array:
    """Return by how much losses may differ and be equal: the rounding of a typical one, the median.

    Args:
        losses: Of n models, shape (n,) or (n, N), in any unit.

    Returns:
        Shape () or (N,).
    """
    return np.asarray(_ROUNDING * np.median(np.abs(losses), axis=0))


def best_frequencies(risks: Array) -> NDArray[np.float64]:
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


def frequencies_of_few(risks: Array, most: int) -> NDArray[np.float64]:
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
