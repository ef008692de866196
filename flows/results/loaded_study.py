"""`load_study` and `load_champion`: read-only access to a study from Python."""

from contextlib import closing
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

from prefect_tune.flows.options.store_location import existing_store
from prefect_tune.flows.reading.lookup import champion_of
from prefect_tune.flows.reading.opened_study import open_study, params_of
from prefect_tune.flows.reading.study_view import ChosenTrial, StudyView, read_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.opening import StoreAddress
from prefect_tune.tasks.bad_input import errors_for_caller

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from sklearn.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class LoadedStudy:
    """Read-only access to a study in a store, created by `load_study`.

    Each access reads the store again, so that you can follow a running study. Further properties of
    the study are in `view`.
    """

    name: str
    address: StoreAddress = field(repr=False)  # may contain a password
    # Record with a champion's copy of the model.
    model_record: str | None = field(default=None, repr=False)

    @property
    def plan(self) -> StudyPlan:
        """Plan of the study: data, space, method, metric, seed, budget and constraints."""
        with self._opened() as store:
            return open_study(store, self.name).plan

    @property
    def best_trial(self) -> int:
        """Number of the best trial, for use with `trial`.

        Raises `ValueError` if no trial is complete yet, or if no trial meets the constraints.
        """
        return self._best.trial

    @property
    def best_value(self) -> float:
        """Loss of the best trial. Raises `ValueError` if there is no best trial yet."""
        return self._best.loss

    @property
    def best_params(self) -> dict[str, Any]:
        """Algorithms and hyperparameters of the best trial, named as in `PipelineSearch`.

        Raises `ValueError` if there is no best trial yet.
        """
        with self._opened() as store:
            space = open_study(store, self.name).space_if_known()
        return params_of(self._best.configuration, space)

    @property
    def view(self) -> StudyView:
        """The content of `prefect-tune show`, as typed values."""
        with self._opened() as store:
            return read_study(store, self.name)

    def trial(self, number: int) -> dict[str, Any]:
        """Return a trial with its explanation, as `show STUDY --trial NUMBER --json` prints it.

        Raises `BadInput` if the trial does not exist.
        """
        from prefect_tune.flows.reading.opened_study import explained_trial  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return explained_trial(store, self.name, number).to_json()

    def pipeline(self, number: int) -> "Pipeline":
        """Return the unfitted pipeline of a trial.

        Raises `BadInput` if the trial does not exist, or if this machine has another version of the
        space.
        """
        from prefect_tune.flows.results.built_pipeline import built_pipeline  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return built_pipeline(store, self.name, number).pipeline

    def trials_dataframe(self) -> "pd.DataFrame":
        """Return a table with one row per trial and the columns of Optuna's `trials_dataframe`.

        The columns are `number`, `value` (the loss), `datetime_start`, `datetime_complete` (UTC)
        and `duration` (without waiting) of the latest attempt, `params_<step>`,
        `params_<step>__<hyperparameter>`, `user_attrs_...` (fold losses, measured quantities,
        seconds with and without the cache, hits, failures), `system_attrs_...`, and `state`. States
        have Optuna's names: a partial trial is PRUNED.
        """
        from prefect_tune.flows.results.trial_table import trial_table  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return trial_table(store, self.name)

    def to_optuna(self) -> "optuna.Study":
        """Return the study as an in-memory Optuna study, for use with Optuna's tools.

            study = load_study("responders").to_optuna()
            optuna.importance.get_param_importances(study, params=["fit model", "rescale"])
            optuna.visualization.plot_optimization_history(study)

        Each step is a parameter, and each hyperparameter is named `step/algorithm/hyperparameter`.
        Raises `BadInput` if this machine has another version of the space.
        """
        from prefect_tune.flows.results.optuna_study import optuna_study  # noqa: PLC0415 - heavy

        with self._opened() as store:
            return optuna_study(store, self.name)

    def model(self, *, matrix: bool = False) -> Any:
        """Return the final model, the estimator that `prefect-tune export` writes.

        If `matrix` is true, the model has no step that reads table rows, as with `export --matrix`.
        Raises `BadInput` if the study has no model yet, and `RecordDamaged` if the model's record
        is damaged.
        """
        from prefect_tune.flows.results.exported import exported_model  # noqa: PLC0415 - heavy

        with self._opened() as store:
            model, _ = exported_model(store, self.name, of_matrix=matrix, record=self.model_record)
        return model

    @property
    def _best(self) -> ChosenTrial:
        best = self.view.incumbent
        if best is None:
            raise ValueError(f"study {self.name!r} has no best trial yet")
        return best

    def _opened(self) -> closing[ArtifactStore]:
        return closing(ArtifactStore(self.address, is_read=True))


@errors_for_caller()
def load_study(
    name: str, store: str | PathLike[str] | None = None, database: str | None = None
) -> LoadedStudy:
    """Return read-only access to a study: table of trials, best values, and final model.

    Raises `BadInput` if the store does not exist, and `UnknownName` if the study does not exist.

    Args:
        name: Name of the study.
        store: URL of the store, or `block:NAME` for a Prefect block; by default, the store of this
            machine.
        database: URL of the database, if the database is not inside the store.
    """
    study = LoadedStudy(name, existing_store(store, database))
    study.plan  # noqa: B018 - raises if the study does not exist
    return study


@errors_for_caller()
def load_champion(
    series: str, store: str | PathLike[str] | None = None, database: str | None = None
) -> LoadedStudy:
    """Return read-only access to a series' champion: `model()` returns the champion's model.

    All other results are results of the champion's study. If the study was resumed after the
    promotion and now has another model, `model()` still returns the promoted model. Raises
    `BadInput` if the store does not exist or the series has no champion, and `UnknownName` if the
    series does not exist. `store` and `database` are the arguments of `load_study`.
    """
    address = existing_store(store, database)
    with closing(ArtifactStore(address, is_read=True)) as opened:
        champion = champion_of(opened, series)
    return LoadedStudy(champion.study, address, champion.record)
