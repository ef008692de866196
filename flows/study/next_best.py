"""The trials that are tried as the final model, one after the other, until one can be refitted.

The best comes first. After three failures of the same algorithm, its other trials are put off, and
after a refit over the time limit all trials that took as long. Trials that were put off
are tried last, the quickest first, for a tenth of the study's time or a minute. So a study with a
trial that works finds it, and hundreds of trials that share one fault do not cost hours.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import inf
from time import monotonic

from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.tasks.final_model import RefitFailed

_MOST_FAILURES = 3
"""Failures of an algorithm after which its other trials are put off."""
_SHARE, _LEAST_SECONDS = 0.1, 60.0
"""Time for trials that were put off: a share of the study's, and the least."""


def ranked_trials(history: History) -> list[Trial]:
    """Return the trials that may become the model: one for each configuration, the best first.

    Full evaluations come before partial ones. All meet the constraints.
    """
    ranked = [*history.best(len(history.complete)), *history.partial]
    first = {trial.query.configuration: trial for trial in reversed(ranked)}
    return [trial for trial in ranked if first[trial.query.configuration] is trial]


class NextBest:
    """Trials in the order in which they are refitted, until one can be the model.

    Args:
        ranked: Trials to choose from, the best first.
        study_seconds: Time that the study has taken.
        clock: Seconds on a clock that never goes back.
    """

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
        """Take into account that a trial could not be refitted."""
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
    """Return the algorithm of each step that the search chose, in order."""
    return {step: choice.algorithm for step, choice in trial.query.configuration.choices}


def fold_seconds(trial: Trial) -> float:
    """Return the time that one fold on all rows takes, as far as the trial shows."""
    if trial.evaluation is None:
        return 0.0
    n_folds = max(1, len(trial.evaluation.fold_losses))
    return trial.evaluation.cost_uncached_seconds / n_folds / trial.query.subset
