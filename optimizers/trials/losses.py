"""The losses that models are fitted on: failed trials have one too, by a rule that is stated.

Losses that differ by no more than rounding are equal.
"""

import numpy as np
from numpy.typing import NDArray

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
    if rule == "chance" and objective.chance is not None:
        return objective.chance
    return worst


def told_losses(
    history: History, objective: Objective, rule: FailureCost
) -> tuple[list[Trial], NDArray[np.float64]]:
    """Return complete and failed trials in the order of asking, and their losses, shape (n,)."""
    trials = [t for t in history if t.state in (TrialState.COMPLETE, TrialState.FAILED)]
    failed = failure_loss(history, objective, rule)
    return trials, np.array([failed if t.loss is None else t.loss for t in trials])


def log_losses(losses: NDArray[np.float64], objective: Objective) -> NDArray[np.float64]:
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


def is_least(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which losses are the least along the first axis, ties included, of the same shape.

    Args:
        losses: Of n models, shape (n,) or (n, N), in any unit.
    """
    return losses <= losses.min(axis=0) + rounding_of(losses)


def rounding_of(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much losses may differ and be equal: the rounding of a typical one, the median.

    Args:
        losses: Of n models, shape (n,) or (n, N), in any unit.

    Returns:
        Shape () or (N,).
    """
    return np.asarray(_ROUNDING * np.median(np.abs(losses), axis=0))
