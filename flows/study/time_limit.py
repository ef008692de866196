"""The time limit of the next trial, by what the trials before it have taken."""

from bisect import insort
from collections.abc import Iterable, Mapping
from math import inf

from prefect_tune.flows.text import format_seconds
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.trial import Trial

_LEAST_FINISHED = 5
"""Trials that must have finished before their median says anything."""
_TIMES_MEDIAN = 20.0
_TIMES_BEST = 2.0
_FLOOR_SECONDS = 30.0
_TIMES_REST = 1.5
_MOST_REST = 2.5
_TIMES_FAILED = 2.0


class TimeLimit:
    """Ends trials that take far longer than those that finish, where the user has set no limit.

    The limit is 20 times the median of the finished trials, at least 30 s, at least twice what the
    best one took, and at most that of the plan. Costs are those without the cache, by fold: a trial
    of one fold has the time of one fold. Parts of the rows or of a training say nothing of what the
    whole takes, and do not count; such a part of a training keeps the limit of the plan.

    One that goes on after its first fold has half as much again as its other folds should take,
    even if that is up to two and a half times the limit of the plan. One that failed and is run
    again has two and a half times that limit, or twice what it took if that is more.

    Args:
        most_seconds: Limit of the plan.
        n_folds: Folds of a whole evaluation.
        is_adaptive: Whether it may be another one.
        failed_seconds: What trials took that failed and are run again, by their numbers.
    """

    def __init__(
        self,
        most_seconds: float,
        n_folds: int,
        *,
        is_adaptive: bool,
        failed_seconds: Mapping[int, float] | None = None,
    ) -> None:
        self._most, self._is_adaptive = most_seconds, is_adaptive
        self._failed_seconds = failed_seconds or {}
        self._costs: list[float] = []
        self._best = (inf, 0.0)
        self._n_folds = n_folds
        self._first_folds: dict[Configuration, float] = {}

    @property
    def fold_seconds(self) -> float:
        """Longest that a trial of one fold may take."""
        return self._of_folds(1)

    def follow(self, trials: Iterable[Trial]) -> None:
        """Take trials that have ended."""
        for trial in trials:
            seen, query = trial.evaluation, trial.query
            if seen is None or query.subset < 1 or query.epochs is not None:
                continue
            n_folds = max(len(seen.fold_losses), 1)
            cost = seen.cost_uncached_seconds / n_folds
            insort(self._costs, cost)
            if query.is_full:
                self._best = min(self._best, (seen.loss, cost))
            elif n_folds == 1:
                self._first_folds[query.configuration] = cost

    def seconds(self, trial: Trial) -> float:
        """Return how long a trial may take."""
        query, failed = trial.query, self._failed_seconds.get(trial.number)
        if self._is_adaptive and failed is not None:
            return max(_MOST_REST * self._most, _TIMES_FAILED * failed)
        if not self._is_adaptive or query.epochs is not None:
            return self._most
        first = self._first_folds.get(query.configuration, 0.0) if query.is_full else 0.0
        rest = min(_TIMES_REST * (self._n_folds - 1) * first, _MOST_REST * self._most)
        return max(self._of_folds(query.folds or self._n_folds), rest)

    def _of_folds(self, n_folds: int) -> float:
        if not self._is_adaptive or len(self._costs) < _LEAST_FINISHED:
            return self._most
        median = self._costs[len(self._costs) // 2]
        of_fold = max(_TIMES_MEDIAN * median, _TIMES_BEST * self._best[1])
        return min(max(n_folds * of_fold, _FLOOR_SECONDS), self._most)

    def note(self, trial: Trial) -> str:
        """Return what to say, once, when a trial has a lower limit than the plan's; or nothing."""
        is_kept = trial.query.epochs is not None or trial.number in self._failed_seconds
        if is_kept or self._of_folds(trial.query.folds or self._n_folds) >= self._most:
            return ""
        of_part = ""
        if folds := trial.query.folds:
            seconds = format_seconds(self.seconds(trial))
            of_part = f" ({folds} of {self._n_folds} folds after {seconds})"
        return (
            f"trials end after {format_seconds(self._of_folds(self._n_folds))} now{of_part}, "
            f"{_TIMES_MEDIAN:g} times the median of those that finished; `retry` gives a failed "
            f"trial {format_seconds(_MOST_REST * self._most)}; --trial-timeout sets another limit"
        )
