"""Retention of held-out predictions, and of the models of partial trials, in the store.

Predictions that are no longer needed are deleted during the study. Models of partial trials are
pinned, because their training may be resumed.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from operator import itemgetter

from prefect_tune.flows.study.lease import study_lease
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import PREDICTIONS, predictions_record

_BEST = 50
"""Number of best trials whose predictions are kept. Greedy selection needs fewer, but new
constraints may change the ranking.
"""
BEST_OF_ENSEMBLES = 1000
"""Number of best trials whose predictions are kept if any trial can be a member. Worse trials are
never best in a bootstrap sample.
"""
_LAST = 10
_MOST_CONFIGURATIONS = 200
"""Number of latest resumable configurations whose predictions are kept and models pinned."""
_TRIALS_PER_DROP = 20
"""Size of groups in which predictions are deleted. A transaction costs as much as ten deletions."""
PIN_SECONDS = 86_400.0
"""Time after which the pins of a killed session expire."""

Rank = tuple[bool, bool, float, int]


class Retention:
    """Keeps predictions of the best, latest and resumable trials, and models of resumable trials.

    Args:
        store: Store of the study; this process must hold the study's lease.
        study: Name of the study.
        violation: Function that returns the violation of a trial's constraints, `<= 0` if all
            constraints are met.
        model_step: Name of the step whose models are pinned; None if no trial may be resumed.
        uses_all: Whether an ensemble may use all trials rather than only the best.
    """

    def __init__(
        self,
        store: ArtifactStore,
        study: str,
        violation: Callable[[Trial], float],
        *,
        model_step: str | None,
        uses_all: bool,
    ) -> None:
        self._records, self._pins = store.records, store.index.pins
        self._study, self._owner = study, f"{study_lease(study)} rungs"
        self._violation, self._model_step = violation, model_step
        self._n_best = BEST_OF_ENSEMBLES if uses_all else _BEST
        self._best: list[tuple[Rank, Trial]] = []
        self._last: deque[Trial] = deque(maxlen=_LAST)
        self._resumable: dict[Configuration, Trial] = {}
        self._known: set[str] = set()
        self._n_told = 0

    def begin(self, trials: Iterable[Trial], incumbent: Trial | None) -> None:
        """Register all trials so far, in order; delete predictions left by earlier sessions."""
        for trial in trials:
            self._take(trial)
        linked = self._records.used_by(self._study, PREDICTIONS)
        self._known.intersection_update(record.rsplit("/", 1)[-1] for record in linked)
        self._drop(incumbent)
        models = [key for trial in self._resumable.values() for key in self._models(trial)]
        if self._model_step is not None:
            self._pins.set(models, self._owner, PIN_SECONDS)

    def tell(self, trial: Trial, incumbent: Trial | None) -> None:
        """Register an ended trial and the incumbent; occasionally delete unneeded predictions."""
        released = [key for former in self._take(trial) for key in self._models(former)]
        models = self._models(trial) if trial.state == TrialState.STOPPED else []
        if models or released:
            self._pins.set(models, self._owner, PIN_SECONDS, released=released)
        self._n_told += 1
        if self._n_told % _TRIALS_PER_DROP == 0:
            self._drop(incumbent)

    def release(self) -> None:
        """Release all pins of the study."""
        self._pins.release(self._owner)

    def _take(self, trial: Trial) -> list[Trial]:
        """Register a trial; return the trials that can no longer be resumed."""
        if trial.evaluation is None:
            return []
        self._known.update(trial.evaluation.predictions)
        self._last.append(trial)
        loss = inf if trial.loss is None else trial.loss
        is_partial = trial.state != TrialState.COMPLETE
        rank = is_partial, self._violation(trial) > 0, loss, trial.number
        insort(self._best, (rank, trial), key=itemgetter(0))
        del self._best[self._n_best :]
        if self._model_step is None:
            return []
        former = [self._resumable.pop(trial.query.configuration, None)]
        if trial.state == TrialState.STOPPED:
            self._resumable[trial.query.configuration] = trial
            if len(self._resumable) > _MOST_CONFIGURATIONS:
                former.append(self._resumable.pop(next(iter(self._resumable))))
        return [trial for trial in former if trial is not None]

    def _drop(self, incumbent: Trial | None) -> None:
        best = [trial for _, trial in self._best]
        kept = [*best, *self._last, *self._resumable.values(), *([incumbent] if incumbent else [])]
        needed = {key for trial in kept if trial.evaluation for key in trial.evaluation.predictions}
        doomed = [predictions_record(key) for key in sorted(self._known - needed)]
        self._records.release(self._study, doomed, study_lease(self._study))
        self._known &= needed

    def _models(self, trial: Trial) -> list[str]:
        # A model of a subset is no use for a larger subset, unless training in epochs is resumed.
        if trial.evaluation is None or (trial.query.subset != 1.0 and trial.query.epochs is None):
            return []
        return [step.key for step in trial.evaluation.steps if step.step == self._model_step]
