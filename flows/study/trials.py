"""The trials of a study by number, with sums over them that are kept as they change."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial

__all__ = ["StudyTrials", "Totals"]


@dataclass(slots=True)
class Totals:
    """Sums over the trials of a study.

    Attributes:
        told: Trials that have ended.
        failed: Those of them that have failed.
        stopped: Those of them with a loss that are not the whole evaluation.
        cost_seconds: What they took.
        cache_hits: Steps of folds that were served from the cache, of failed trials too.
        seconds_saved: What that saved.
    """

    told: int = 0
    failed: int = 0
    stopped: int = 0
    cost_seconds: float = 0.0
    cache_hits: int = 0
    seconds_saved: float = 0.0

    def count(self, trial: Trial, times: int = 1) -> None:
        """Add a trial, or with -1 take it away again."""
        self.told += times * trial.is_told
        self.failed += times * (trial.state == TrialState.FAILED)
        self.stopped += times * (trial.state == TrialState.STOPPED)
        self.cost_seconds += times * trial.cost_seconds
        outcome = trial.evaluation or trial.failure
        for step in outcome.steps if outcome else ():
            if step.hit:
                self.cache_hits += times
                self.seconds_saved += times * (step.seconds - step.load_seconds)


class StudyTrials(Mapping[int, Trial]):
    """Trials by number, in the order of asking. Keeping one costs the same however many there are.

    Args:
        trials: Those to begin with.

    Attributes:
        totals: Sums over them.
        configurations: Those begun so far.
    """

    def __init__(self, trials: Iterable[Trial] = ()) -> None:
        self.totals = Totals()
        self.configurations: set[Configuration] = set()
        self._trials: dict[int, Trial] = {}
        self._waiting: set[int] = set()
        for trial in trials:
            self.keep(trial)

    def __getitem__(self, number: int) -> Trial:
        return self._trials[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._trials)

    def __len__(self) -> int:
        return len(self._trials)

    def keep(self, trial: Trial) -> None:
        """Add a trial, or replace what is known of it."""
        former = self._trials.get(trial.number)
        if former is None:
            self.configurations.add(trial.query.configuration)
        else:
            self.totals.count(former, -1)
        self._trials[trial.number] = trial
        self.totals.count(trial)
        if trial.state == TrialState.WAITING:
            self._waiting.add(trial.number)
        else:
            self._waiting.discard(trial.number)

    @property
    def waiting(self) -> list[Trial]:
        """Those that wait to be started, by number."""
        return [self._trials[number] for number in sorted(self._waiting)]
