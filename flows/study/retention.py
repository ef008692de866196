"""Held-out predictions and models of stopped trials that a study keeps in the store.

Predictions that nothing may use any more are deleted during the study and recomputed on demand,
from the cached model or by refitting it. A session pins the models of stopped trials, because
their configurations may be resumed.
"""

from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import inf

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.cache.index import Pins
from prefect_tune.storage.key import PREDICTIONS, predictions_record
from prefect_tune.storage.records import Records

_BEST = 50
"""Best trials kept: more than greedy selection needs, as new constraints may change the ranking."""
BEST_OF_ENSEMBLES = 1000
"""Best trials kept if all can be members; worse ones are never the best in a bootstrap."""
_LAST = 10
_MOST_CONFIGURATIONS = 200
"""Newest resumable configurations whose predictions are kept and whose models are pinned."""
_TRIALS_PER_DROP = 20
"""Predictions are deleted in groups, because a transaction costs as much as about ten deletions."""

Rank = tuple[bool, bool, float, int]


class KeptPredictions:
    """Selects trials whose predictions stay: the best, the latest and those that may be resumed.

    The work per trial does not grow with the number of trials.

    Args:
        lease: Lease this process must hold.
        violation: Function that returns a trial's violation of constraints, `<= 0` if it meets all.
        uses_all: Whether an ensemble may consist of any trials.
        can_go_on: Whether stopped trials may be resumed.
    """

    def __init__(
        self,
        records: Records,
        study: str,
        lease: str,
        violation: Callable[[Trial], float],
        *,
        uses_all: bool,
        can_go_on: bool,
    ) -> None:
        self._records, self._study, self._lease = records, study, lease
        self._violation, self._can_go_on = violation, can_go_on
        self._n_best = BEST_OF_ENSEMBLES if uses_all else _BEST
        self._best: list[tuple[Rank, Trial]] = []
        self._last: deque[Trial] = deque()
        self._stopped: dict[Configuration, Trial] = {}
        self._uses: Counter[str] = Counter()
        self._dropped: set[str] = set()
        self._n_told = 0

    def begin(self, trials: Iterable[Trial], incumbent: Trial | None) -> None:
        """Take the trials so far in asking order; delete predictions left by former sessions."""
        for trial in trials:
            self._take(trial)
        linked = self._records.used_by(self._study, PREDICTIONS)
        self._dropped.intersection_update(map(_key, linked))
        self._drop(incumbent)

    def tell(self, trial: Trial, incumbent: Trial | None) -> None:
        """Take a trial's outcome and the incumbent; sometimes delete unneeded predictions."""
        self._take(trial)
        self._n_told += 1
        if self._n_told % _TRIALS_PER_DROP == 0:
            self._drop(incumbent)

    def _drop(self, incumbent: Trial | None) -> None:
        doomed = sorted(self._dropped.difference(_keys(incumbent)))
        self._records.release(self._study, [predictions_record(key) for key in doomed], self._lease)
        self._dropped.difference_update(doomed)

    def _take(self, trial: Trial) -> None:
        if trial.evaluation is None:
            return
        self._hold(trial)
        self._last.append(trial)
        if len(self._last) > _LAST:
            self._let_go(self._last.popleft())
        self._hold(trial)
        insort(self._best, (self._rank(trial), trial), key=lambda ranked: ranked[0])
        if len(self._best) > self._n_best:
            self._let_go(self._best.pop()[1])
        if self._can_go_on:
            self._take_partial(trial)

    def _take_partial(self, trial: Trial) -> None:
        configuration = trial.query.configuration
        if former := self._stopped.pop(configuration, None):
            self._let_go(former)
        if trial.state == TrialState.STOPPED:
            self._hold(trial)
            self._stopped[configuration] = trial
            if len(self._stopped) > _MOST_CONFIGURATIONS:
                self._let_go(self._stopped.pop(next(iter(self._stopped))))

    def _rank(self, trial: Trial) -> Rank:
        loss = inf if trial.loss is None else trial.loss
        is_part = trial.state != TrialState.COMPLETE
        return is_part, self._violation(trial) > 0, loss, trial.number

    def _hold(self, trial: Trial) -> None:
        self._uses.update(_keys(trial))
        self._dropped.difference_update(_keys(trial))

    def _let_go(self, trial: Trial) -> None:
        for key in _keys(trial):
            self._uses[key] -= 1
            if self._uses[key] == 0:
                del self._uses[key]
                self._dropped.add(key)


def _keys(trial: Trial | None) -> Sequence[str]:
    return () if trial is None or trial.evaluation is None else trial.evaluation.predictions


def _key(record: str) -> str:
    return record.rsplit("/", 1)[-1]


class RungPins:
    """Pins the models of the newest partial evaluation of each incomplete configuration."""

    def __init__(self, pins: Pins, owner: str, step: str, seconds: float) -> None:
        self._pins, self._owner = pins, owner
        self._step, self._seconds = step, seconds
        self._keys: dict[Configuration, tuple[str, ...]] = {}

    def begin(self, trials: Iterable[Trial]) -> None:
        """Pin the models that can be resumed from, given the trials so far in asking order."""
        for trial in trials:
            self._change(trial)
        keys = [key for keys in self._keys.values() for key in keys]
        self._pins.set(keys, self._owner, self._seconds)

    def tell(self, trial: Trial) -> None:
        """Take the outcome of a trial and update the pins of its configuration."""
        gone = self._change(trial)
        keys = self._keys.get(trial.query.configuration, ())
        if trial.state == TrialState.STOPPED or gone:
            self._pins.change(keys, gone, self._owner, self._seconds)

    def release(self) -> None:
        """Release all pins."""
        self._keys.clear()
        self._pins.release(self._owner)

    def _change(self, trial: Trial) -> tuple[str, ...]:
        configuration, gone = trial.query.configuration, tuple[str, ...]()
        if trial.state in {TrialState.STOPPED, TrialState.COMPLETE}:
            gone = self._keys.pop(configuration, ())
        # A model fitted on a subset cannot serve a larger one; only a training is resumable.
        serves = trial.query.subset == 1.0 or trial.query.epochs is not None
        if serves and trial.state == TrialState.STOPPED and trial.evaluation is not None:
            steps = trial.evaluation.steps
            self._keys[configuration] = tuple(s.key for s in steps if s.step == self._step)
            if len(self._keys) > _MOST_CONFIGURATIONS:
                gone += self._keys.pop(next(iter(self._keys)))
        return gone
