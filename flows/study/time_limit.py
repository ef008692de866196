"""The time limit of the next trial, by what the trials before it have taken."""

from bisect import insort
from collections.abc import Iterable
from math import inf

from prefect_tune.flows.units import format_seconds
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["TimeLimit"]

_LEAST_FINISHED = 10
"""Trials that must have finished before their median says anything."""
_TIMES_MEDIAN = 20.0
_TIMES_BEST = 2.0
_FLOOR_SECONDS = 30.0


class TimeLimit:
    """Ends trials that take far longer than those that finish, where the user has set no limit.

    The limit is 20 times the median of the finished trials, at least 30 s, at least twice what the
    best one took, and at most that of the plan. Costs are those without the cache, of the whole
    evaluation: where less than a whole one is asked for, the limit of the plan stays.

    Args:
        most_seconds: Limit of the plan.
        is_adaptive: Whether it may be lower.
    """

    def __init__(self, most_seconds: float, *, is_adaptive: bool) -> None:
        self._most, self._is_adaptive = most_seconds, is_adaptive
        self._costs: list[float] = []
        self._best = (inf, 0.0)

    def follow(self, trials: Iterable[Trial]) -> None:
        """Take trials that have ended."""
        for trial in trials:
            if trial.evaluation is not None and trial.query.is_full:
                cost = trial.evaluation.cost_uncached_seconds
                insort(self._costs, cost)
                self._best = min(self._best, (trial.evaluation.loss, cost))

    def seconds(self, trial: Trial) -> float:
        """Return how long a trial may take."""
        is_known = len(self._costs) >= _LEAST_FINISHED
        if not (self._is_adaptive and is_known and trial.query.is_full):
            return self._most
        of_median = _TIMES_MEDIAN * self._costs[len(self._costs) // 2]
        of_best = _TIMES_BEST * self._best[1]
        return min(max(of_median, of_best, _FLOOR_SECONDS), self._most)

    def note(self, trial: Trial) -> str:
        """Return what to say, once, when a trial has a lower limit than the plan's; or nothing."""
        seconds = self.seconds(trial)
        if seconds >= self._most:
            return ""
        return (
            f"trials end after {format_seconds(seconds)} now, {_TIMES_MEDIAN:g} times the median "
            f"of those that finished; `retry` gives them {format_seconds(self._most)}, and "
            "--trial-timeout sets another limit"
        )
