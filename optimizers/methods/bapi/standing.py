"""Which training is the answer: the one that is good for a while, not at one lucky epoch.

The least loss of hundreds of validated epochs is least by luck in part. A mean over neighbouring
epochs has less of it, and tells configurations apart; for the epoch of the one that is chosen its
own losses are the better guide.
"""

from collections.abc import Sequence

import numpy as np

from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["best_stretch", "steady_loss"]

_SHARE = 0.18
"""Of a full training, that a loss is averaged over."""


def steady_loss(losses: Sequence[float], t_max: int) -> float:
    """Return the least mean of losses over neighbouring epochs, 18 % of a full training.

    A curve that is shorter counts with the mean of all its epochs.

    Args:
        losses: After each epoch, at least one.
        t_max: Epochs of a full training.
    """
    width = min(max(1, round(_SHARE * t_max)), len(losses))
    return float(np.lib.stride_tricks.sliding_window_view(losses, width).mean(axis=1).min())


def best_stretch(
    curves: Sequence[LearningCurve], history: History, *, is_steady: bool
) -> Trial | None:
    """Return the trial that is the answer; its best epoch is that of the model.

    Args:
        curves: All that were begun.
        history: Says which trials meet the constraints.
        is_steady: Whether configurations are compared by their steady losses; else by the least
            loss at any epoch.
    """
    best: tuple[float, float, int] | None = None
    for curve in curves:
        feasible = [t for t in curve.trials if t.loss is not None and history.violation(t) <= 0]
        if not feasible:
            continue
        trial = min(feasible, key=lambda t: (t.loss, t.number))
        least = trial.loss or 0.0
        longest = max((t.evaluation.curve for t in feasible if t.evaluation), key=len)
        compared = steady_loss(longest or (least,), curve.t_max) if is_steady else least
        ranked = (compared, least, trial.number)
        best = ranked if best is None else min(best, ranked)
    return None if best is None else history[best[2]]
