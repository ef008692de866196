"""`PipelineSearch`: a scikit-learn estimator that runs a study on a DataFrame or array."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Literal, Self, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags, Tags, check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d

from prefect_tune.deployments.estimator.training_rows import frame_of, target_of, with_groups
from prefect_tune.deployments.estimator.trial_columns import trial_columns
from prefect_tune.deployments.server.embedded import local_server
from prefect_tune.deployments.server.prefect_settings import mute_prefect_console
from prefect_tune.deployments.views.live import (
    NotebookLine,
    is_notebook,
    observer_for,
    without_widget_warning,
)
from prefect_tune.flows.options.declared import OPTIONS
from prefect_tune.flows.reading.opened_study import params_of
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.results.exported import exported_model
from prefect_tune.flows.running.event_loop import apart_from_loop
from prefect_tune.flows.study.progress import Observer, observed_by
from prefect_tune.flows.tune import tune
from prefect_tune.optimizers.documents import UnknownName, from_document
from prefect_tune.optimizers.registry import DEFAULT_METHOD, METHODS
from prefect_tune.tasks.bad_input import BadInput, errors_for_caller, for_caller
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import Label, load_dataset
from prefect_tune.tasks.data.row_reader import as_pandas
from prefect_tune.tasks.data.tables import number_texts
from prefect_tune.tasks.objective.metric import DEFAULT_METRICS, metric_named
from prefect_tune.tasks.objective.predictions import (
    ScoreMethod,
    predicted_labels,
    predicted_scores,
    predictions_of,
)

Predicts = Literal["classification", "regression"]
ScoresOf = TypeVar("ScoresOf", bound=Callable[..., NDArray[np.float64]])


def _best_has(name: str, *, before_fit: bool) -> Callable[[ScoresOf], ScoresOf]:
    """Make a method available if the best estimator has it, and optionally before `fit`."""

    def has(search: "PipelineSearch") -> bool:
        if hasattr(search, "best_estimator_"):
            return hasattr(search.best_estimator_, name)
        return before_fit and search._predicts() == "classification"  # noqa: SLF001 - a method of the class

    decorator: Callable[[ScoresOf], ScoresOf] = available_if(has)
    return decorator


class PipelineSearch(BaseEstimator):
    """Search for the best pipeline that predicts classes or numbers from rows of a table.

    `fit` runs the flow `tune` on all rows. The study is stored where the command line stores
    studies, so `prefect-tune show` and other commands can open the study. If no Prefect server is
    configured, `fit` starts a server and stops the server afterwards. To share a server between
    fits, wrap the fits in `with local_server():`. All other parameters are passed to `tune`.

    Args:
        predicts: Kind of target, `classification` or `regression`. With None, the kind follows from
            the metric, the space or the target, as in `tune`, and scikit-learn sees a classifier
            until `fit` is called.
        metric: Metric of the search and of `score`; by default accuracy or r2.
        test_size: Share of rows that are held back and scored once, at the end; by default 0.
        random_state: Seed of all random numbers; None means 0.
        verbose: Amount of output: 0 for none; with other values, a notebook shows one updating
            line, and a terminal shows the output of `prefect-tune run`.

    Attributes:
        best_estimator_: Fitted final model, as `prefect-tune export` writes it. The first step of
            the model reads rows by the schema of the training data.
        best_params_: Algorithms and hyperparameters of the model's trial; for an ensemble, of the
            best trial.
        best_score_: Cross-validation score of the trial in `best_params_`; larger is better.
        best_index_: Position of the trial in `best_params_` among the trials of `cv_results_`.
        cv_results_: Finished trials, in the format of scikit-learn's searches. Failed trials have
            the score nan.
        study_name_: Name of the study.
        summary_: Output of `prefect-tune show --json`.
        notes_: Notes on the data and on automatic decisions.
        classes_: Class labels; missing for regression.
        n_features_in_: Number of columns of X.
        feature_names_in_: Column names, if X was a DataFrame.
    """

    def __init__(
        self,
        *,
        predicts: Predicts | None = None,
        budget: str | None = None,
        trials: int | None = None,
        space: str | None = None,
        method: str | None = None,
        metric: str | None = None,
        positive: Label | None = None,
        constraint: Sequence[str] | None = None,
        ensemble: int | str | None = None,
        epochs: int | None = None,
        race: bool | None = None,
        start: str | None = None,
        option: dict[str, Any] | None = None,
        folds: int | None = None,
        holdout: float | None = None,
        test_size: float = 0.0,
        group: str | None = None,
        time: str | None = None,
        gap: str | None = None,
        drop: Sequence[str] | None = None,
        categorical: Sequence[str] | None = None,
        na_values: Sequence[str] | None = None,
        decimal: str | None = None,
        input: str | None = None,  # noqa: A002 - the option's name
        trial_timeout: str | None = None,
        trial_memory: str | None = None,
        random_state: int | np.random.RandomState | None = None,
        study: str | None = None,
        workers: int | None = None,
        dask: str | None = None,
        store: str | None = None,
        database: str | None = None,
        cache_budget: str | None = None,
        no_cache: bool = False,
        task_runs: str | None = None,
        verbose: int = 1,
    ) -> None:
        self.predicts = predicts
        self.space, self.method = space, method
        self.metric, self.positive = metric, positive
        self.budget, self.trials = budget, trials
        self.constraint, self.ensemble = constraint, ensemble
        self.epochs, self.race, self.start, self.option = epochs, race, start, option
        self.folds, self.holdout, self.test_size = folds, holdout, test_size
        self.group, self.time, self.gap = group, time, gap
        self.drop, self.categorical = drop, categorical
        self.na_values, self.decimal = na_values, decimal
        self.input = input
        self.trial_timeout, self.trial_memory = trial_timeout, trial_memory
        self.random_state = random_state
        self.study, self.workers, self.dask = study, workers, dask
        self.store, self.database = store, database
        self.cache_budget, self.no_cache = cache_budget, no_cache
        self.task_runs, self.verbose = task_runs, verbose

    @errors_for_caller()
    def fit(self, X: Any, y: Any, *, groups: Any = None) -> Self:
        """Search for the best pipeline, and fit the pipeline on all n rows of X.

        Args:
            X: Rows as a DataFrame of pandas, polars, pyarrow or another library, or as an array.
            y: Targets, shape (n,). The shape (n, 1) is accepted with a warning.
            groups: Group labels, shape (n,). Rows with equal labels, such as rows of one patient,
                share a fold. If the groups are a column of X, pass its name as the parameter
                `group` instead.

        Raises:
            BadInput, UnknownName, ValueError: If the input is invalid; raised before any work
                starts.
            StudyFailed: If nothing was evaluated, or if no trial can be refitted.
        """
        metric, seed = self._metric(), self.random_state
        if seed is not None and not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        frame = frame_of(self, X, is_new=True)
        target = target_of(self, y, frame, self._known_target())
        frame, group = with_groups(frame, groups, self.group, target)
        given = {
            **{name: getattr(self, name) for name in OPTIONS if hasattr(self, name)},
            "data": frame,
            "group": group,
            "target": target,
            "metric": metric,
            "seed": None if seed is None else int(seed),
        }
        apart_from_loop(lambda: self._run(given))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted classes or numbers, shape (n,)."""
        rows, classes = self._rows(X), self._classes()
        found = predicted_labels(self.best_estimator_, rows, classes)
        return classes[found] if len(classes) else found

    # Most models have `predict_proba`, and stacking checks before `fit`.
    @_best_has("predict_proba", before_fit=True)
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class, shape (n, c)."""
        return self._scores(X, "predict_proba")

    @_best_has("decision_function", before_fit=False)
    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return decision scores, shape (n, c). For two classes, the shape is (n,)."""
        scores = self._scores(X, "decision_function")
        return scores[:, 1] if len(self._classes()) == 2 else scores

    def score(self, X: Any, y: Any) -> float:
        """Return the score in the study's metric; larger is better. May raise `BadInput`."""
        rows = self._rows(X)
        classes = self._classes()
        true = column_or_1d(as_pandas(y))
        if len(classes):
            unknown = np.setdiff1d(true, classes)
            if len(unknown):
                raise BadInput(f"y has the class {unknown[0]!r}, which no training row has")
            true = np.searchsorted(classes, true)
        else:
            true = number_texts(pd.Series(true, name="y"), "score", "regression", "")[0].to_numpy()
        predictions = predictions_of(self.best_estimator_, rows, classes)
        return self._fitted_metric.score(self._fitted_metric.loss(true, predictions, len(classes)))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        if self._predicts() == "classification":
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        method = METHODS.get(self.method or DEFAULT_METHOD)
        in_turn = self.workers == 1 and self.trials is not None and self.budget is None
        repeats = in_turn and method is not None and not method.draws_on_cost
        tags.non_deterministic = not repeats
        return tags

    def _run(self, given: dict[str, Any]) -> None:
        following: AbstractContextManager[Observer] = (
            nullcontext(NotebookLine())
            if self.verbose and is_notebook()
            else observer_for(quiet=not self.verbose, json_lines=False)
        )
        with (
            without_widget_warning(),
            tune.frame_taken(given) as (plain, prepared),
            mute_prefect_console(),
            local_server(),
            following as observer,
            observed_by(observer),
        ):
            summary = tune(**plain)
        store, problem = prepared.store, prepared.plan.problem
        dataset = load_dataset(store, problem.dataset)
        self.best_estimator_, _ = exported_model(store, prepared.name)
        self._fitted_metric = problem.find_metric()
        self.study_name_, self.summary_ = prepared.name, summary
        self.notes_ = [for_caller(str(note)) for note in prepared.notes]
        self.cv_results_ = trial_columns(store, prepared.name)
        view = from_document(StudyView, summary)
        best = view.model_trial or view.incumbent
        assert best is not None  # noqa: S101 - a study with a model has a best trial
        self.best_params_ = params_of(best.configuration, problem.find_space())
        self.best_score_ = self._fitted_metric.score(best.loss)
        self.best_index_ = int(np.flatnonzero(self.cv_results_["trial"] == best.trial)[0])
        if dataset.classes:
            self.classes_ = np.array(dataset.classes)
        elif hasattr(self, "classes_"):
            del self.classes_

    @errors_for_caller()
    def _rows(self, X: Any) -> pd.DataFrame:
        check_is_fitted(self, "best_estimator_")
        return frame_of(self, X, is_new=False)

    def _classes(self) -> NDArray[Any]:
        return getattr(self, "classes_", np.empty(0))

    def _scores(self, X: Any, method: ScoreMethod) -> NDArray[np.float64]:
        rows = self._rows(X)
        return predicted_scores(self.best_estimator_, rows, self._classes(), method)

    def _metric(self) -> str | None:
        """Return the metric's name; None if the target decides; raise if the metric is invalid."""
        if self.predicts is None:
            return self.metric
        if self.predicts not in DEFAULT_METRICS:
            raise UnknownName("value of predicts", self.predicts, DEFAULT_METRICS)
        name = self.metric or DEFAULT_METRICS[self.predicts]
        if (target := metric_named(name).target) != self.predicts:
            raise BadInput(f"metric {name} is for {target}, but predicts={self.predicts!r}")
        return name

    def _known_target(self) -> Predicts | None:
        if self.predicts in DEFAULT_METRICS:
            return self.predicts
        with suppress(UnknownName, TypeError):
            if self.metric is not None:
                return metric_named(self.metric).target
            if self.space is not None:
                return space_named(self.space).target
        return None

    def _predicts(self) -> Predicts:
        """Return the kind of target: known after `fit`, given, or assumed."""
        if hasattr(self, "best_estimator_"):
            return "classification" if hasattr(self, "classes_") else "regression"
        return self._known_target() or "classification"
