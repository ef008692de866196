"""The trials so far, in the order of asking, as models want to see them."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.constraint import Constraint, violation
from prefect_tune.optimizers.trials.state import TrialState
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["History"]


class History:
    """Trials by number; the only mutable state that optimizers share.

    Many methods: each is a question that some model or method asks of the trials.

    A trial enters when it is asked for, and each later state of it replaces the earlier one.

    Args:
        constraints: Met by an incumbent.
    """

    def __init__(self, constraints: Sequence[Constraint] = ()) -> None:
        self.constraints = tuple(constraints)
        self._trials: dict[int, Trial] = {}

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    def __contains__(self, number: int) -> bool:
        return number in self._trials

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def get(self, number: int) -> Trial | None:
        """Return the trial of that number, if it was asked for."""
        return self._trials.get(number)

    def record(self, trial: Trial) -> None:
        """Add a trial, or replace what is known of it."""
        self._trials[trial.number] = trial

    @property
    def asked(self) -> set[Configuration]:
        """The configurations asked for so far."""
        return {t.query.configuration for t in self}

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Trials asked for whose outcome is not known yet."""
        return tuple(t for t in self if not t.is_told)

    @property
    def complete(self) -> tuple[Trial, ...]:
        """Trials of full queries with a loss."""
        return tuple(t for t in self if t.state == TrialState.COMPLETE)

    @property
    def stopped(self) -> tuple[Trial, ...]:
        """Trials with a loss that are not the whole evaluation."""
        return tuple(t for t in self if t.state == TrialState.STOPPED)

    def stretches(self, configuration: Configuration) -> tuple[Trial, ...]:
        """Return the trials of a configuration, in the order of asking."""
        return tuple(t for t in self if t.query.configuration == configuration)

    @property
    def failed(self) -> tuple[Trial, ...]:
        """Trials without one."""
        return tuple(t for t in self if t.state == TrialState.FAILED)

    @property
    def losses(self) -> NDArray[np.float64]:
        """Losses of the complete trials, shape (n,)."""
        return np.array([t.evaluation.loss for t in self.complete if t.evaluation])

    @property
    def incumbent(self) -> Trial | None:
        """The best complete trial that meets the constraints.

        Of equals, the one asked for first.
        """
        feasible = [t for t in self.complete if self.violation(t) <= 0]
        return min(feasible, key=lambda t: (t.loss, t.number), default=None)

    @property
    def nearest_infeasible(self) -> Trial | None:
        """Of the complete trials that do not, the one that is least above."""
        infeasible = [t for t in self.complete if self.violation(t) > 0]
        return min(infeasible, key=lambda t: (self.violation(t), t.loss, t.number), default=None)

    def violation(self, trial: Trial) -> float:
        """Return by how much a complete trial violates the constraints; `<= 0` within all."""
        return violation(self.constraints, trial.evaluation.constraints if trial.evaluation else {})
