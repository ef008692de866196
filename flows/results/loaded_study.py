"""`load_study`: a study to look at from Python, as `prefect-tune show` and `trials` do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefect_tune.flows.options.caller import errors_for_caller
from prefect_tune.flows.reading.lookup import find_study
from prefect_tune.flows.reading.study_view import ChosenTrial, StudyView, read_study
from prefect_tune.flows.reading.trial_detail import params_of
from prefect_tune.flows.store_location import store_address
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.opening import StoreAddress
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.tasks.bad_input import BadInput

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from sklearn.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """A study in a store, to look at: nothing of it can be changed here.

    Made by `load_study`. The store is read anew with each access, so a study that is running may be
    followed; other properties than these are in `view`.

    Attributes:
        name: Its name.
        address: Where its store is.
    """

    name: str
    address: StoreAddress = field(repr=False)  # it may have a password

    @property
    def plan(self) -> StudyPlan:
        """All that it is run with: data, space, method, metric, seed, budget and constraints."""
        with self._opened() as store:
            return StudyPlan.from_stored(find_study(store, self.name))

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.plan.method

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.plan.metric

    @property
    def space(self) -> str:
        """Name of the space."""
        return self.plan.space

    @property
    def state(self) -> str:
        """Where it stands: running, complete, interrupted or failed."""
        return self.view.state

    @property
    def best_trial(self) -> int:
        """Number of the best trial, see `trial`.

        Raises:
            ValueError: If no trial is complete yet, or none meets the constraints.
        """
        return self._best.trial

    @property
    def best_value(self) -> float:
        """Loss of the best trial; smaller is better.

        Raises:
            ValueError: If there is none yet.
        """
        return self._best.loss

    @property
    def best_params(self) -> dict[str, Any]:
        """Algorithms and hyperparameters of the best trial, as `PipelineSearch` has them.

        Raises:
            ValueError: If there is none yet.
        """
        return params_of(self._best.configuration)

    @property
    def view(self) -> StudyView:
        """Everything that `prefect-tune show` prints, as typed values."""
        with self._opened() as store:
            return read_study(store, self.name)

    def summary(self) -> dict[str, Any]:
        """Return what `prefect-tune show --json` prints."""
        return self.view.to_json()

    def trial(self, number: int) -> dict[str, Any]:
        """Return what `prefect-tune show STUDY --trial NUMBER --json` prints.

        Raises:
            BadInput: If there is no such trial.
        """
        from prefect_tune.flows.reading.trial_detail import trial_detail  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return trial_detail(store, self.name, number).to_json()

    def pipeline(self, number: int) -> "Pipeline":
        """Return the pipeline of a trial, unfitted, as it was built for its first fold.

        Args:
            number: Number of the trial.

        Raises:
            BadInput: If there is no such trial, or its space is another one here.
        """
        from prefect_tune.flows.results.built_pipeline import built_pipeline  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return built_pipeline(store, self.name, number).pipeline

    def trials_dataframe(self) -> "pd.DataFrame":
        """Return its trials, a row each, with the columns that Optuna's studies have.

        `number`, `value` (the loss), `datetime_start` and `datetime_complete` (UTC) of the last
        attempt, `duration` (what that took, without the time that it waited), `params_<step>` and
        `params_<step>__<hyperparameter>`, `user_attrs_...` (losses of folds, measured quantities,
        seconds with and without the cache, hits, failures), `system_attrs_...`, and `state` in
        Optuna's words: what ran on less than all of the rows, folds or epochs is PRUNED.
        """
        from prefect_tune.flows.results.trial_table import trial_table  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return trial_table(store, self.name)

    def to_optuna(self) -> "optuna.Study":
        """Return it as a study of Optuna in memory, with which Optuna's tools work.

            study = load_study("responders").to_optuna()
            optuna.importance.get_param_importances(study, params=["fit model", "rescale"])
            optuna.visualization.plot_optimization_history(study)

        Its parameters are the steps, and `step/algorithm/hyperparameter` of each.

        Raises:
            BadInput: If its space is another one here.
        """
        from prefect_tune.flows.results.optuna_study import optuna_study  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return optuna_study(store, self.name)

    def model(self) -> Any:
        """Return its final model, the estimator that `prefect-tune export` writes.

        Raises:
            BadInput: If it has no model yet, or one that does not meet constraints set since.
            RecordDamaged: If the model's record is damaged.
        """
        from prefect_tune.flows.results.exported import exported_model  # noqa: PLC0415 - heavy

        with self._opened() as store:
            model, _ = exported_model(store, self.name)
        return model

    @property
    def _best(self) -> ChosenTrial:
        best = self.view.incumbent
        if best is None:
            raise ValueError(f"study {self.name!r} has no complete trial that may be chosen yet")
        return best

    @contextmanager
    def _opened(self) -> Iterator[ArtifactStore]:
        store = ArtifactStore(self.address)
        try:
            yield store
        finally:
            store.close()


@errors_for_caller()
def load_study(name: str, store: str | None = None, database: str | None = None) -> LoadedStudy:
    """Return a study to look at: its trials as a table, its best values, its model.

    Args:
        name: Its name.
        store: URL of its store, or `block:NAME`; by default that of this machine.
        database: URL of the store's database, where that is not in the store.

    Raises:
        BadInput: If there is no such store.
        UnknownName: If there is no such study in it.
    """
    address = store_address(store, database)
    if not ArtifactStore.exists(address):
        raise BadInput(f"there is no store at {address.url}; a first study makes one")
    study = LoadedStudy(name, address)
    study.plan  # noqa: B018 - whether there is one
    return study
