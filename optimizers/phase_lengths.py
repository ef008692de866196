"""How many trials the phases of FLASH get of a budget."""

from dataclasses import dataclass

from prefect_tune.optimizers.history import History
from prefect_tune.optimizers.optimizer import Budget

__all__ = ["PhaseLengths", "capacity", "phase_lengths"]


@dataclass(frozen=True, slots=True)
class PhaseLengths:
    """Trials of Phases 1 and 2, and what to say when they are fewer than wanted."""

    n_init: int
    n_prune: int
    note: str = ""


def capacity(budget: Budget, history: History) -> float | None:
    """How many trials a budget holds in all; None when nothing limits it, or nothing is known yet.

    The seconds left are divided by the mean cost of the trials so far, with the asks' own time.
    """
    limits = []
    if budget.trials_left is not None:
        limits.append(float(len(history) + budget.trials_left))
    costs = [t.cost_seconds for t in history if t.is_told]
    if budget.seconds_left is not None and costs:
        each = (sum(costs) + budget.ask_seconds) / len(costs)
        if each > 0:
            limits.append(len(history) + max(budget.seconds_left, 0.0) / each)
    return min(limits, default=None)


def phase_lengths(n_init: int, n_prune: int, limit: float | None) -> PhaseLengths:
    """Both phases, shrunk in proportion where together they exceed `limit` trials."""
    wanted = n_init + n_prune
    if limit is None or wanted <= limit:
        return PhaseLengths(n_init, n_prune)
    share = limit / wanted
    shorter = PhaseLengths(max(1, int(n_init * share)), max(min(n_prune, 1), int(n_prune * share)))
    note = (
        f"the budget holds too few trials for phases of {n_init} + {n_prune}; they are "
        f"{shorter.n_init} + {shorter.n_prune}"
    )
    return PhaseLengths(shorter.n_init, shorter.n_prune, note)
