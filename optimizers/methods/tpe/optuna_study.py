"""An Optuna study that serves given trials and says nothing."""

from collections.abc import Container
from logging import getLogger
from typing import Any

import optuna
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

__all__ = ["new_trial", "study_of"]

_STUDY = "prefect_tune.optimizers.methods.tpe"
# Optuna logs each study that it makes.
getLogger(InMemoryStorage.__module__).addFilter(lambda record: _STUDY not in record.getMessage())


def study_of(trials: list[FrozenTrial]) -> optuna.Study:
    """Return a study to minimise, in memory, of these trials."""
    return optuna.create_study(storage=_GivenTrials(trials), study_name=_STUDY)


def new_trial(number: int) -> FrozenTrial:
    """Return a trial that nothing has been suggested for."""
    return FrozenTrial(
        number=number,
        trial_id=-1,
        state=OptunaState.RUNNING,
        value=None,
        datetime_start=None,
        datetime_complete=None,
        params={},
        distributions={},
        user_attrs={},
        system_attrs={},
        intermediate_values={},
    )


class _GivenTrials(InMemoryStorage):
    """A storage that serves the trials it is given; adding them one by one would copy each."""

    def __init__(self, trials: list[FrozenTrial]) -> None:
        super().__init__()
        self._given = trials

    def get_all_trials(
        self,
        study_id: int,  # noqa: ARG002
        deepcopy: bool = True,  # noqa: ARG002
        states: Container[OptunaState] | None = None,
    ) -> list[FrozenTrial]:
        return [t for t in self._given if states is None or t.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Drop the note that other processes would read; ours learn of pending trials by asks."""
