"""Advice while BAPI searches: when it is not the method to take."""

from collections.abc import Mapping, Sequence
from statistics import median

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve

__all__ = ["advice_of"]

_LEAST_PLANS = 5
_LEAST_RATES = 3


def advice_of(
    curves: Sequence[LearningCurve],
    budget: Budget,
    t_max: int,
    *,
    n_plans: int,
    said: Mapping[str, str],
) -> dict[str, str]:
    """Return notes by what they are about; those that were said stay as they are.

    Args:
        curves: All that were begun.
        budget: What is left, and what the last asks took.
        t_max: Epochs of a full training.
        n_plans: Plans made so far.
        said: Earlier notes.
    """
    notes = dict(said)
    rates = [c.rate for c in curves if c.is_iterative and c.rate is not None]
    if len(rates) < _LEAST_RATES:
        return notes
    epoch = median(rates)
    if "dear" not in notes and n_plans >= _LEAST_PLANS and budget.last_ask_seconds:
        look = median(budget.last_ask_seconds)
        if epoch < look:
            notes["dear"] = (
                f"an epoch takes {_milliseconds(epoch)}, less than a look of the planner "
                f"({_milliseconds(look)}): --method hyperband would spend that time on training"
            )
    if "small" not in notes and budget.seconds_left is not None:
        total = budget.seconds_spent + max(budget.seconds_left, 0.0)
        if total < epoch * t_max:
            notes["small"] = (
                f"the budget is less than one full training, which takes about "
                f"{epoch * t_max:.3g} s: no model is trained to its last epoch"
            )
    return notes


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms"
