"""Pins of a session on the models of stopped trials, from which their configurations go on."""

from collections.abc import Iterable

from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.cache.pins import Pins

__all__ = ["StretchPins"]

_MOST_CONFIGURATIONS = 200
"""The newest ones; of more, pins would fill a small cache."""


class StretchPins:
    """Keeps the models of the newest stopped stretch of each configuration that is not complete.

    Args:
        pins: Of the store.
        owner: Who pins.
        step: Name of the step that makes the model.
        seconds: Longest time that they stay pinned.
    """

    def __init__(self, pins: Pins, owner: str, step: str, seconds: float) -> None:
        self._pins, self._owner = pins, owner
        self._step, self._seconds = step, seconds
        self._keys: dict[Configuration, tuple[str, ...]] = {}

    def begin(self, trials: Iterable[Trial]) -> None:
        """Pin what the trials so far, in the order of asking, can go on from."""
        for trial in trials:
            self._change(trial)
        keys = [key for keys in self._keys.values() for key in keys]
        self._pins.set(keys, self._owner, self._seconds)

    def tell(self, trial: Trial) -> None:
        """Take the outcome of a trial; a few pins change, however many trials there are."""
        gone = self._change(trial)
        keys = self._keys.get(trial.query.configuration, ())
        if trial.state == TrialState.STOPPED or gone:
            self._pins.change(keys, gone, self._owner, self._seconds)

    def release(self) -> None:
        """Release all of them."""
        self._keys.clear()
        self._pins.release(self._owner)

    def _change(self, trial: Trial) -> tuple[str, ...]:
        """Take note of a trial; return the keys that need no pin any more."""
        configuration, gone = trial.query.configuration, tuple[str, ...]()
        if trial.state in {TrialState.STOPPED, TrialState.COMPLETE}:
            gone = self._keys.pop(configuration, ())
        # What was fitted on a subset serves no larger one; only a training goes on there.
        serves = trial.query.subset == 1.0 or trial.query.epochs is not None
        if serves and trial.state == TrialState.STOPPED and trial.evaluation is not None:
            steps = trial.evaluation.steps
            self._keys[configuration] = tuple(s.key for s in steps if s.step == self._step)
            if len(self._keys) > _MOST_CONFIGURATIONS:
                gone += self._keys.pop(next(iter(self._keys)))
        return gone
