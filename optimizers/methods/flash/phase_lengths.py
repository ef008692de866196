"""How many trials the phases of FLASH get of a budget."""

from dataclasses import dataclass

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.trials.history import History

__all__ = ["PhaseLengths", "capacity", "phase_lengths"]

_COLD = 2
"""So many first trials say little about the next ones: their workers were still importing."""
_LEAST_KNOWN = 3
"""Trials after those that must have been told before seconds are counted in trials."""


@dataclass(frozen=True, slots=True)
class PhaseLengths:
    """Trials of Phases 1 and 2."""

    n_init: int
    n_prune: int


def capacity(budget: Budget, history: History) -> float | None:
    """How many trials a budget holds in all; None when nothing limits it, or nothing is known yet.

    The seconds left are divided by the mean cost of the trials so far, with the asks' own time.
    """
    limits = []
    if budget.trials_left is not None:
        limits.append(float(len(history) + budget.trials_left))
    told = [t for t in history if t.is_told]
    costs = [t.cost_seconds for t in told if t.number >= _COLD]
    if budget.seconds_left is not None and len(costs) >= _LEAST_KNOWN:
        each = sum(costs) / len(costs) + budget.ask_seconds / len(told)
        if each > 0:
            limits.append(len(history) + max(budget.seconds_left, 0.0) / each)
    return min(limits, default=None)


def phase_lengths(wanted: PhaseLengths, limit: float | None, least: int = 1) -> PhaseLengths:
    """Both phases, shrunk in proportion where together they exceed `limit` trials.

    Args:
        wanted: What they would be in a large budget.
        limit: Trials that they may take together; None for as many as they want.
        least: Trials of Phase 1 in any case, if so many are wanted.
    """
    both = wanted.n_init + wanted.n_prune
    if limit is None or both <= limit:
        return wanted
    share = limit / both
    n_init = min(max(1, least, int(wanted.n_init * share)), wanted.n_init)
    return PhaseLengths(n_init, max(min(wanted.n_prune, 1), int(wanted.n_prune * share)))
