"""The remaining budget, B_r of algorithms 1, 2 and 4, and the epochs it pays for."""

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil, floor, inf
from statistics import fmean, mean

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.space.configuration import Configuration

_LOOKS_A_STRETCH = 5
"""Least time of a stretch, in looks of the planner, so that looks stay a small part of the time."""


def affordable(seconds: float, rate: float, *, done: int, target: int) -> int:
    """Return the epochs, up to a target, that a training reaches; 0 if not one more than is done.

    Args:
        seconds: Seconds the new epochs may take; inf for no end.
        rate: Seconds of an epoch.
        done: Epochs done.
        target: Most epochs, from the start of the training.
    """
    if seconds == inf:
        return target
    n = floor(seconds / rate)
    return min(target, done + n) if n >= 1 else 0


@dataclass(frozen=True, slots=True)
class RemainingBudget:
    """The rest of a budget.

    Attributes:
        budget: The budget at this ask.
        curves: All curves of the study, in the order of beginning.
    """

    budget: Budget
    curves: Collection[LearningCurve]

    @property
    def may_begin(self) -> bool:
        """Whether new configurations may be begun."""
        return self.budget.trials_left != 0

    @property
    def seconds(self) -> float:
        """B_r in worker-seconds, pending trainings included; inf for no end."""
        return inf if self.budget.seconds_left is None else self.budget.seconds_left

    @property
    def longest(self) -> float:
        """Seconds one training may take: one worker's part of those left."""
        return self.seconds / max(self.budget.n_workers, 1)

    @property
    def spent_share(self) -> float:
        """The spent share of the budget, by seconds if they are limited, else by configurations.

        If neither seconds nor new configurations are left, all of it is spent.
        """
        budget = self.budget
        if budget.seconds_left is not None:
            total = budget.seconds_spent + max(budget.seconds_left, 0.0)
            return budget.seconds_spent / total if total > 0 else 1.0
        if budget.trials_left is None:
            return 0.0
        return len(self.curves) / (len(self.curves) + budget.trials_left)

    def epochs(self, done: int, target: int, *, rate: float, pending_seconds: float) -> int:
        """Return the affordable epochs of a training by predicted costs; 0 if not one more.

        Args:
            done: Epochs done.
            target: Epochs the training is to reach.
            rate: Predicted seconds of an epoch.
            pending_seconds: Predicted seconds of the pending trainings, which are paid first.
        """
        seconds = min(self.seconds - pending_seconds, self.longest)
        return affordable(seconds, rate, done=done, target=target)

    def epochs_by_told_rates(self, configuration: Configuration | None, target: int) -> int:
        """Return the affordable epochs of a training before costs are learned; 0 if not one more.

        An epoch takes what the told epochs of its configuration took, or else the mean of the
        others. Before any rate is known, all epochs are affordable while anything is left.

        Args:
            configuration: The configuration; None for a new one.
            target: Epochs the training is to reach.
        """
        rates = {c.configuration: c.rate for c in self.curves if c.rate is not None}
        if not rates:
            return target if self.seconds > 0 else 0
        typical = mean(rates.values())
        left, rate, done = self.seconds, typical, 0
        for curve in self.curves:
            own = rates.get(curve.configuration, typical)
            if curve.is_pending:
                left -= own * max(curve.target - curve.done, 0)
            elif curve.configuration == configuration:
                rate, done = own, curve.done
        return affordable(min(left, self.longest), rate, done=done, target=target)

    def epochs_worth_a_look(self, configuration: Configuration | None, t_max: int) -> int:
        """Return the fewest epochs that take long compared with the looks of the planner.

        They take five looks, or two looks of each worker, because one planner serves them all.

        Args:
            configuration: The configuration, for its rate; None for a typical one.
            t_max: Epochs of a full training, the most that are returned.
        """
        looks = self.budget.last_ask_seconds
        rates = {c.configuration: c.rate for c in self.curves if c.rate is not None}
        if not looks or not rates:
            return 1
        typical = float(np.median(list(rates.values())))
        rate = typical if configuration is None else rates.get(configuration, typical)
        least = fmean(looks) * max(_LOOKS_A_STRETCH, 2 * self.budget.n_workers)
        return ceil(min(least / max(rate, 1e-9), t_max))
