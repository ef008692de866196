"""The time limit of the next trial, based on the costs of earlier trials."""

from math import inf

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.surrogates.costs import Costs
from prefect_tune.optimizers.trials.trial import Trial

_DEVIATIONS = 3.0
"""Standard deviations above the median of predicted ln seconds."""
_SHORTEST_SECONDS, _LONGEST_FLOOR_SECONDS = 5.0, 30.0
_FLOOR_SHARE = 0.25
"""Smallest limit as a share of the time left, within the two bounds above."""
_TIMES_MOST, _TIMES_LOOK = 2.5, 1.5
_DAY_SECONDS = 86_400.0
_PILOT_ROWS = 10_000
"""Minimum number of training rows for a pilot, which takes a fraction of a second."""


class TimeLimit:
    """Ends trials that take far longer than predicted, unless the user has set a limit.

    The first trial of a model's algorithm may take its share of the worker-seconds left (see
    `Costs.allowed_seconds`). Later ones may take three standard deviations above the median
    predicted from measured costs. Every trial gets at least a quarter of the time left, within 5 to
    30 s; on a subset of the rows, this minimum is at most 1.5 times the allowed seconds. Without a
    time budget, no limit exceeds the plan's `most_seconds`. A rerun trial gets 2.5 times
    `most_seconds`.
    """

    def __init__(
        self,
        costs: Costs,
        most_seconds: float,
        *,
        is_adaptive: bool,
    ) -> None:
        self._costs, self._most, self._is_adaptive = costs, most_seconds, is_adaptive
        self.lifted: int | None = None
        """Number of the trial that may take a day; None if there is none."""

    @property
    def of_user(self) -> float | None:
        """Limit set by the user; None if there is none."""
        return None if self._is_adaptive else self._most

    def seconds(self, trial: Trial, budget: Budget) -> float:
        """Return the time limit of a trial that starts now."""
        if trial.number == self.lifted:
            return max(self._most, _DAY_SECONDS)
        if not self._is_adaptive:
            return self._most
        if trial.attempts:
            return _TIMES_MOST * self._most
        query, left = trial.query, budget.seconds_left
        most = self._most if left is None else inf
        floor = _LONGEST_FLOOR_SECONDS if left is None else _FLOOR_SHARE * left / budget.n_workers
        if query.subset < 1 and left is not None:
            floor = min(floor, _TIMES_LOOK * self._costs.allowed_seconds(query, budget))
        limits = [min(max(floor, _SHORTEST_SECONDS), _LONGEST_FLOOR_SECONDS)]
        is_first = self._costs.model_of(query.configuration) not in self._costs.seen
        share = self._costs.share_seconds(query.configuration, budget)
        if is_first:
            limits.append(share)
        elif query.epochs is not None:  # seconds of trainings are not predicted
            limits.append(share / budget.n_workers)
        if self._costs.is_known(query.configuration):
            limits.append(self._costs.seconds(query, _DEVIATIONS))
        return min(most, max(limits))

    def pilot_seconds(self, trial: Trial, budget: Budget) -> float | None:
        """Return the largest pilot prediction for which a trial starts; None for no pilot.

        With many rows, a pilot precedes the first trial of a model's algorithm or of another
        potentially slow step, unless the trial is a rerun or has no limit.
        """
        is_small = self._costs.rows(trial.query) < _PILOT_ROWS
        is_again = trial.attempts or trial.number == self.lifted
        if is_small or is_again or not self._costs.has_unknown(trial.query.configuration):
            return None
        allowed = self._costs.allowed_seconds(trial.query, budget)
        return None if allowed == inf else allowed
