"""The losses that models are fitted on: failed trials have one too, by a rule that is stated."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import FailureCost, Objective
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["failure_loss", "log_losses", "told_losses"]


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
