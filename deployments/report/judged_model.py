"""The final model, judged on the test rows: quality, columns used, and data.

Test predictions are not stored, so the model predicts the test rows again, as for a model card.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from prefect_tune.flows.results.predict import balanced_weight, final_model
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.masking import masked
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.catalogue.event_windows import PARENT_ENDING
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.split import REFIT, Split, load_split
from prefect_tune.tasks.final.ensemble import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.final.figures import (
    ModelInput,
    code_coverage,
    column_effects,
    dependence,
    described_columns,
    named_classes,
)
from prefect_tune.tasks.final.quality import (
    LossInterval,
    calibration,
    class_curve,
    class_quality,
    errors_of_bins,
    loss_with_interval,
    residual_counts,
)
from prefect_tune.tasks.final.refit import predicted
from prefect_tune.tasks.objective.metric import Metric, metric_named
from prefect_tune.tasks.objective.predictions import Array, Predictions
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.user_code import exits_as_errors

_SAMPLE = {"events": 2_000, "table": 500}
"""Maximum number of test rows for permutations, by kind of data."""
_SECONDS = {"events": 5.0, "table": 0.5}
"""CPU seconds after which no further codes or columns are permuted, by kind of data."""
_DEPENDENCE_ROWS = 100
_NUMBER_METRICS = ("r2", "neg_mean_absolute_error", "neg_root_mean_squared_error")
_MOST_CURVES, _MOST_CONFUSED, _MOST_DEPENDENCES = 6, 12, 5
"""Maximum numbers of classes with curves, classes in the confusion matrix, and dependence plots."""


@dataclass(slots=True, eq=False)
class ModelReport:
    """The final model on the test rows, and the data. After an error, the report is incomplete.

    Tables (a table that does not apply is missing):
    - `classes`: rows, recall, precision and area of each class, the most frequent class first
    - `curves`: rates by threshold, of the positive class or the most frequent classes
    - `confusion`: rows by actual and predicted class, of the most frequent classes
    - `calibration`: see `calibration`; only of two classes with probabilities
    - `by_predicted`, `by_actual`: see `errors_of_bins`; `residuals`: see `residual_counts`
    - `effects`: see `column_effects`, with the description of each code
    - `dependence`: mean score by value of the columns with the largest effects
    - `columns`: see `described_columns`; `coverage`: see `code_coverage`

    Attributes:
        problem: Reason why the model or its effects could not be judged; empty if both were judged,
            or if there is no model.
        n_training, n_rows: Numbers of training rows and test rows.
        units: Units that the bootstrap draws: `patients`, `groups` or `rows`.
        classes: The two classes, the positive class last; empty for other targets.
        intervals: Losses with intervals by metric, the study's metric first; None if undefined.
        is_balanced: Whether any member was trained with balanced class weights.
        effects_of, n_sample, n_codes: Trial in which effects were measured, number of test rows
            used, and number of columns or codes.
        measure: Name of the loss whose increase measures an effect.
        n_hidden, n_rare_classes: Numbers of codes and of classes that are hidden because too few
            patients or rows have them.
    """

    problem: str = ""
    n_training: int = 0
    n_rows: int = 0
    units: str = "rows"
    classes: tuple[str, ...] = ()
    intervals: Mapping[str, LossInterval | None] = field(default_factory=dict)
    is_balanced: bool = False
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    effects_of: int | None = None
    n_sample: int = 0
    n_codes: int = 0
    measure: str = ""
    n_hidden: int = 0
    n_rare_classes: int = 0

    @property
    def is_judged(self) -> bool:
        """Whether the model has predicted the test rows."""
        return bool({"confusion", "residuals"} & self.tables.keys())


def model_report(store: ArtifactStore, study: str, plan: StudyPlan, fewest: int) -> ModelReport:
    """Judge the final model on the test rows. Only StoreLost and StoreRefused are raised.

    Values that occur in fewer than `fewest` rows or patients are not named.
    """
    problem, report = plan.problem, ModelReport()
    try:
        problem.find_space()  # also loads the user's classes and metric
        dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
        rows = _TestRows(report, dataset, split, problem.find_metric(), plan.seed)
        rows.describe(fewest)
    except Exception as error:  # any class: data may be deleted, and metrics are user code
        return ModelReport(_reason(error))
    if not (report.n_rows and store.records.exists(model_record(study))):
        return report
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as during fitting
        try:
            with exits_as_errors():
                model, about = final_model(store, study)
                report.is_balanced = balanced_weight(store, study, plan, about) > 0
                rows.judge(model)
                rows.measure_effects(model, about["members"])
        except Exception as error:  # any class: the model may be user code
            report.problem = _reason(error)
    return report


class _TestRows:
    """The test rows of a study, which fill in a report. All random draws depend on `seed`."""

    def __init__(
        self, report: ModelReport, dataset: Dataset, split: Split, metric: Metric, seed: int
    ) -> None:
        self._report, self._dataset, self._metric, self._seed = report, dataset, metric, seed
        self._rows, self._training = split.held_out(REFIT), np.flatnonzero(split.is_training)
        self._names = np.array([*map(str, dataset.classes)], dtype=object)
        reader = dataset.row_reader
        self._columns = () if reader is None else reader.columns
        self._by_rows = np.zeros(0, dtype=np.intp)  # classes that may be named
        self._rare = set[str]()  # codes that are not named

    def describe(self, fewest: int) -> None:
        report, X, y, names = self._report, self._dataset.X, self._dataset.y, self._names
        report.n_training, report.n_rows = len(self._training), len(self._rows)
        if len(names):
            self._by_rows = named_classes(y, len(names), fewest)
            n_rows = np.bincount(y[self._training], minlength=len(names))
            classes = pd.DataFrame({"label": names, "training_rows": n_rows})
            report.tables["classes"] = classes.iloc[self._by_rows]
            report.n_rare_classes = len(names) - len(self._by_rows)
        if len(names) == 2:
            report.classes = tuple(names[:: 1 if self._metric.positive else -1])
        if isinstance(X, pd.DataFrame):
            report.units = "rows" if self._dataset.groups is None else "groups"
            report.tables["columns"] = described_columns(X, self._columns, fewest)
            return
        is_positive = (y == self._metric.positive).astype(np.int32)
        coverage = code_coverage(X, self._training, is_positive if report.classes else None)
        is_rare = coverage["n_patients"] < fewest
        self._rare = set(coverage.loc[is_rare, "code"])
        report.units, report.n_hidden = "patients", int(is_rare.sum())
        report.tables["coverage"] = coverage[~is_rare]

    def judge(self, model: Any) -> None:
        report, dataset, rows, n_classes = self._report, self._dataset, self._rows, len(self._names)
        found, y, positive = predicted(model, dataset, rows), dataset.y[rows], self._metric.positive
        groups = None if dataset.groups is None else dataset.groups[rows]
        also: Sequence[str] = () if n_classes else _NUMBER_METRICS
        if report.classes and found.score is not None:
            also = ("auroc", "neg_brier_score")
        metrics = [self._metric, *(metric_named(name, positive) for name in also)]
        judge = partial(loss_with_interval, n_classes=n_classes, seed=self._seed)
        report.intervals = {metric.name: judge(metric, y, found, groups) for metric in metrics}
        if not n_classes:
            actual = y.astype(np.float64)
            report.tables["by_predicted"] = errors_of_bins(actual, found.label, found.label)
            report.tables["by_actual"] = errors_of_bins(actual, found.label, actual)
            report.tables["residuals"] = residual_counts(actual, found.label)
            return
        quality = class_quality(y, found.label, self._names).rename(columns={"rows": "test_rows"})
        report.tables["classes"] = report.tables["classes"].merge(quality)
        shown = self._names[self._by_rows[:_MOST_CONFUSED]]
        pairs = pd.DataFrame({"actual": self._names[y], "predicted": self._names[found.label]})
        both = pd.MultiIndex.from_product([shown, shown], names=["actual", "predicted"])
        counts = pairs.value_counts().reindex(both, fill_value=0)
        report.tables["confusion"] = counts.rename("rows").reset_index()
        if found.score is None:
            return
        if report.classes and found.are_probabilities:
            bins = calibration(y == positive, found.score[:, positive])
            report.tables["calibration"] = bins
        with_curves = [positive] if report.classes else self._by_rows[:_MOST_CURVES]
        curves = [
            class_curve(y == c, found.score[:, c]).assign(label=self._names[c])
            for c in with_curves
            if 0 < np.count_nonzero(y == c) < len(y)
        ]
        if curves:
            report.tables["curves"] = pd.concat(curves)

    def measure_effects(self, model: Any, members: Sequence[Mapping[str, Any]]) -> None:
        report, dataset, metric = self._report, self._dataset, self._metric
        report.measure = "auroc" if report.intervals.get("auroc") else metric.name
        judging = metric_named(report.measure, metric.positive)
        heaviest = max(range(len(members)), key=lambda k: float(members[k]["weight"]))
        pipeline = model.members_[heaviest] if len(members) > 1 else model
        while isinstance(pipeline, ClassEnsemble | NumberEnsemble):  # the models of the folds
            pipeline = pipeline.members_[0]
        rng, rows, n_classes = np.random.default_rng(self._seed), self._rows, len(self._names)
        # Each of two classes gets up to half of the sample.
        sides = [rows[dataset.y[rows] == i] for i in range(2)] if report.classes else [rows]
        n_of_side = _SAMPLE[dataset.kind] // len(sides)
        sample = np.sort(np.concatenate([rng.permutation(side)[:n_of_side] for side in sides]))
        y, some = dataset.y[sample], dataset.rows(sample)
        answers = [metric.positive] if report.classes else [*self._by_rows[:_MOST_DEPENDENCES]]
        answers = answers or [0]  # the predicted number

        def scores_of(found: Predictions) -> Array:
            return found.outputs(n_classes)[:, answers]

        def loss_of(found: Predictions) -> float:
            return judging.loss(y, found, n_classes)

        if isinstance(some, EventRows):
            given, descriptions = ModelInput.of_events(pipeline, some), some.descriptions()
        else:
            given, descriptions = ModelInput.of_table(pipeline, some, self._columns), {}
        judge, seconds = (dataset.learned_classes, scores_of), _SECONDS[dataset.kind]
        effects, report.n_codes = column_effects(given, *judge, loss_of, self._seed, seconds)
        effects = effects[~effects["code"].isin(self._rare)]
        plain = effects["code"].str.removesuffix("*").str.removesuffix(PARENT_ENDING)
        described = [descriptions.get(code, "") for code in plain]
        report.effects_of, report.n_sample = members[heaviest]["trial"], len(y)
        columns = {one.name: one for one in self._columns if one.kind != "text"}
        first = effects.loc[effects["strength"] > 0, "code"].unique()
        shown = [columns[code] for code in first if code in columns][:_MOST_DEPENDENCES]
        if shown and (len(self._by_rows) or not n_classes):
            given = replace(given, matrix=dataset.rows(rng.permutation(rows)[:_DEPENDENCE_ROWS]))
            labels = self._names[answers] if n_classes else [""]
            curves = [dependence(given, column, *judge, labels) for column in shown]
            report.tables["dependence"] = pd.concat(curves)
        is_text = effects["code"].isin([one.name for one in self._columns if one.kind == "text"])
        direction = effects["direction"].mask(is_text)  # values of hashed words mean nothing
        report.tables["effects"] = effects.assign(description=described, direction=direction)


def _reason(error: Exception) -> str:
    """Return the reason for a missing part. If the store is lost, raise the error again."""
    if isinstance(error, StoreLost | StoreRefused) and not isinstance(error, RecordDamaged):
        raise error
    return masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])
