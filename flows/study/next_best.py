"""Candidates for the final model, tried in turn until one can be refitted.

The best trial comes first. After three failures of an algorithm, its other trials are postponed.
After a refit over the time limit, all trials that took as long are postponed. Postponed trials come
last, fastest first, for at most a tenth of the study's time or a minute. A study with a working
trial thus finds it, and hundreds of trials with a common fault do not cost hours.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import monotonic

from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.tasks.final_model import RefitFailed

_MOST_FAILURES = 3
"""Failures of an algorithm after which its other trials are postponed."""
_SHARE, _LEAST_SECONDS = 0.1, 60.0
"""Time for postponed trials: a share of the study's time, and the minimum."""


def ranked_trials(history: History) -> list[Trial]:
    """Return one feasible trial per configuration, best first, full before partial evaluations."""
    ranked = [*history.best(len(history.complete)), *history.partial]
    first = {trial.query.configuration: trial for trial in reversed(ranked)}
    return [trial for trial in ranked if first[trial.query.configuration] is trial]


class NextBest:
    """Yields trials to refit until one can be the model; `ranked` lists them best first."""

    def __init__(
        self,
        ranked: Sequence[Trial],
        study_seconds: float,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._left = list(ranked)
        self._most_seconds = max(_SHARE * study_seconds, _LEAST_SECONDS)
        self._clock = clock
        self._n_failed: Counter[tuple[str, str]] = Counter()
        self._too_slow = inf

    def __iter__(self) -> Iterator[Trial]:
        while (best := next((t for t in self._left if not self._is_put_off(t)), None)) is not None:
            self._left.remove(best)
            yield best
        until = self._clock() + self._most_seconds
        for trial in sorted(self._left, key=fold_seconds):
            if self._clock() >= until:
                return
            yield trial

    def note_failure(self, trial: Trial, failure: RefitFailed) -> None:
        """Record that a trial could not be refitted."""
        algorithms = _algorithms(trial)
        step = failure.step or next(reversed(algorithms), "")
        self._n_failed[step, algorithms.get(step, "")] += 1
        if failure.is_over_limit:
            self._too_slow = min(self._too_slow, fold_seconds(trial))

    def _is_put_off(self, trial: Trial) -> bool:
        if fold_seconds(trial) >= self._too_slow:
            return True
        algorithms = _algorithms(trial)
        return any(
            n >= _MOST_FAILURES and algorithms.get(step, "") == algorithm
            for (step, algorithm), n in self._n_failed.items()
        )


def _algorithms(trial: Trial) -> dict[str, str]:
    return {step: choice.algorithm for step, choice in trial.query.configuration.choices}


def fold_seconds(trial: Trial) -> float:
    """Return the estimated seconds of one fold on all rows."""
    if trial.evaluation is None:
        return 0.0
    n_folds = max(1, len(trial.evaluation.fold_losses))
    return trial.evaluation.cost_uncached_seconds / n_folds / trial.query.subset
