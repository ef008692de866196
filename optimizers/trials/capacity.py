"""How many trials a budget holds, as far as the trials so far tell."""

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.trials.history import History

__all__ = ["capacity"]

_N_COLD = 2
"""So many first trials say little about the next ones: their workers were still importing."""
_LEAST_KNOWN = 3
"""Trials after those that must have been told before seconds are counted in trials."""


def capacity(budget: Budget, history: History) -> float | None:
    """Return how many trials a budget holds in all; None when nothing limits or tells it.

    The seconds left are divided by the mean cost of the trials so far, with the asks' own time.
    """
    limits = []
    if budget.trials_left is not None:
        limits.append(float(len(history) + budget.trials_left))
    told = [t for t in history if t.is_told]
    costs = [t.cost_seconds for t in told if t.number >= _N_COLD]
    if budget.seconds_left is not None and len(costs) >= _LEAST_KNOWN:
        each = sum(costs) / len(costs) + budget.ask_seconds / len(told)
        if each > 0:
            limits.append(len(history) + max(budget.seconds_left, 0.0) / each)
    return min(limits, default=None)
