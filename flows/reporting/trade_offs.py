"""The loss against each quantity that is limited, or was measured besides."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite

from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.plan import StudyPlan


@dataclass(slots=True)
class TradeOff:
    """Full trials by their loss and one quantity.

    Attributes:
        quantity: What is measured, as users write it.
        bound: Its largest allowed value; None where it is not limited now.
        trials: Their numbers.
        losses: Their losses.
        values: What was measured of them.
        front: Positions of those that no other one beats in one without losing in the other, from
            the least loss on.
        n_unmeasured: Full trials that it could not be measured of.
    """

    quantity: str
    bound: float | None
    trials: list[int] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    front: Sequence[int] = ()
    n_unmeasured: int = 0


class TradeOffsPass:
    """Takes trials, and what was measured of the full ones.

    Args:
        plan: Of the study.
    """

    def __init__(self, plan: StudyPlan) -> None:
        self._bounds = {b.constraint.name: b.constraint.bound for b in plan.options.bounds}
        self._found = {name: TradeOff(name, bound) for name, bound in self._bounds.items()}
        self._n_full = 0

    def add(self, trial: TrialView) -> None:
        """Take a trial."""
        if not trial.is_full:
            return
        self._n_full += 1
        for name, value in trial.quantities.items():
            if not isfinite(value):
                continue
            of = self._found.setdefault(name, TradeOff(name, None))
            of.trials.append(trial.number)
            of.losses.append(trial.loss)
            of.values.append(value)

    def found(self) -> list[TradeOff]:
        """Return one for each quantity, those that are limited first."""
        for of in self._found.values():
            of.front = _front(of.losses, of.values)
            of.n_unmeasured = self._n_full - len(of.trials)
        return list(self._found.values())


def _front(losses: Sequence[float], values: Sequence[float]) -> list[int]:
    """Return the positions of what is not dominated, from the least loss on."""
    front, least = [], inf
    for i in sorted(range(len(losses)), key=lambda i: (losses[i], values[i])):
        if values[i] < least:
            front.append(i)
            least = values[i]
    return front
