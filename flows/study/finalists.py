"""Finalists: the best few trials, one of which is chosen by another split of the folds too.

The least of hundreds of noisy losses flatters. Where a study ends in one trial's model, a second
look at the best few tells luck from merit. Light to import: `show` says what came of it.
"""

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prefect_tune.flows.study.plan import StudyPlan
    from prefect_tune.optimizers.optimizer import Optimizer
    from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["chosen_look", "ends_in_one", "finalists_of", "mean_loss"]

Look = Mapping[str, Any]
"""A finalist as JSON values: `trial`, its `loss`, and `again` that on another split, or None."""

_FEW = 5
_MOST_SHARE = 0.1
"""Of the seconds of a study, what looking again may take."""


def ends_in_one(plan: "StudyPlan", optimizer: "Optimizer") -> bool:
    """Return whether the final model is that of the trial with the least loss, as it stands.

    Args:
        plan: Has what the user says of ensembles, and the constraints: within them there is none.
        optimizer: May predict losses, and then chooses by itself.
    """
    best, declared = optimizer.history.incumbent, optimizer.method.ensemble
    if plan.ensemble is not None:
        return plan.ensemble.kind == "single" and optimizer.incumbent == best
    is_single = declared is None or (declared == "auto" and bool(plan.bounds))
    return is_single and best is not None and set(optimizer.weights) == {best.number}


def finalists_of(plan: "StudyPlan", optimizer: "Optimizer", cost_seconds: float) -> "list[Trial]":
    """Return at most five trials to look at again, the best first; none if there are not two.

    Together they may take a tenth of what all trials took.

    Args:
        plan: Of the study.
        optimizer: Knows the trials.
        cost_seconds: Of all trials.
    """
    if not ends_in_one(plan, optimizer):
        return []
    history = optimizer.history
    allowed = [trial for trial in history.complete if history.violation(trial) <= 0]
    few, left = [], _MOST_SHARE * cost_seconds
    for trial in nsmallest(_FEW, allowed, key=lambda t: (t.loss, t.number)):
        assert trial.evaluation is not None  # noqa: S101 - it is complete
        left -= trial.evaluation.cost_uncached_seconds
        if left < 0:
            break
        few.append(trial)
    return few if len(few) > 1 else []


def mean_loss(look: Look) -> float:
    """Return the mean of both losses of a finalist."""
    return float(look["loss"] + look["again"]) / 2


def chosen_look(looks: Sequence[Look]) -> Look:
    """Return the finalist with the least mean of both losses; the first if that failed again."""
    if looks[0]["again"] is None:
        return looks[0]
    return min((look for look in looks if look["again"] is not None), key=mean_loss)
