"""The final model on its test rows: its quality, what it uses, and its data.

Test predictions are not stored, so the model predicts here as it does for the card of `export`.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

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
from prefect_tune.tasks.data.row_reader import LearnedColumn
from prefect_tune.tasks.data.split import REFIT, Split, load_split
from prefect_tune.tasks.final.ensemble import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.final.figures import (
    ModelInput,
    code_coverage,
    column_effects,
    dependence,
    described_columns,
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
"""CPU seconds after which no more codes or columns are permuted, by kind of data."""
_DEPENDENCE_ROWS = 100
_MOST_CURVES, _MOST_CONFUSED, _MOST_DEPENDENCES = 6, 12, 5
"""Maximum number of classes with curves, of classes in the confusion matrix, and of columns."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelReport:
    """The final model on the test rows, and the data.

    Tables, each missing if it does not apply:
    - `classes`: rows of each class, the most frequent first; recall, precision and area
    - `curves`: rates by threshold, of the positive class or the most frequent ones
    - `confusion`: rows by actual and predicted class, of the most frequent ones
    - `calibration`: see there; of two classes, if there are probabilities
    - `by_predicted`, `by_actual`: see `errors_of_bins`; `residuals`
    - `effects`: see `column_effects`, with the description of each code
    - `dependence`: mean score by value of the columns with the largest effects
    - `columns`: see `described_columns`; `coverage`: see `code_coverage`

    Attributes:
        problem: Reason why the model or its effects could not be judged; empty if they were, or if
            the model is missing.
        n_training, n_rows: Number of training rows and of test rows.
        units: Units of the bootstraps: `patients`, `groups` or `rows`.
        classes: The two classes, the positive one last; empty for other targets.
        intervals: Losses by metric, the study's first; None if undefined.
        is_balanced: Whether any member was trained with weights that balance the classes.
        effects_of, n_sample, n_codes: Trial whose effects were measured, the number of test rows,
            and the number of columns or codes.
        measure: Name of the loss whose increase the effects measure.
        n_hidden: Number of codes that too few patients have to be named.
    """

    problem: str = ""
    n_training: int = 0
    n_rows: int = 0
    units: str = "rows"
    classes: tuple[str, ...] = ()
    intervals: Mapping[str, LossInterval | None] = field(default_factory=dict)
    is_balanced: bool = False
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    effects_of: int | None = None
    n_sample: int = 0
    n_codes: int = 0
    measure: str = ""
    n_hidden: int = 0

    @property
    def is_judged(self) -> bool:
        """Whether the model predicted the test rows."""
        return bool({"confusion", "residuals"} & self.tables.keys())

    def with_tables(self, **tables: pd.DataFrame) -> Self:
        """Return the report with more tables."""
        return replace(self, tables={**self.tables, **tables})


def model_report(store: ArtifactStore, study: str, plan: StudyPlan, fewest: int) -> ModelReport:
    """Judge the final model on the test rows; only StoreLost and StoreRefused are raised.

    Values that fewer than `fewest` rows or patients have are not named.
    """
    problem = plan.problem
    try:
        problem.find_space()  # also loads the user's classes and metric
        dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
        rows = _TestRows(dataset, split, problem.find_metric(), plan.seed, fewest)
        report = rows.unjudged()
    except Exception as error:  # any class: data may be deleted, and metrics are user code
        return ModelReport(_reason(error))
    if not (report.n_rows and store.records.exists(model_record(study))):
        return report
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as during fitting
        try:
            with exits_as_errors():
                model, about = final_model(store, study)
                balanced = balanced_weight(store, study, plan, about) > 0
                report = rows.judged(replace(report, is_balanced=balanced), model)
                report = rows.with_effects(report, model, about)
        except Exception as error:  # any class: the model may be user code
            report = replace(report, problem=_reason(error))
    return report


class _TestRows:
    """The test rows of a study, used to judge its model; all draws depend on `seed`."""

    def __init__(
        self, dataset: Dataset, split: Split, metric: Metric, seed: int, fewest: int
    ) -> None:
        self._dataset, self._metric, self._seed, self._fewest = dataset, metric, seed, fewest
        self._rows, self._training = split.held_out(REFIT), np.flatnonzero(split.is_training)
        self._names = np.array([*map(str, dataset.classes)], dtype=object)
        n_rows = np.bincount(dataset.y, minlength=len(self._names)) if dataset.classes else ()
        self._by_rows = np.argsort(-np.array(n_rows), kind="stable")  # classes
        self._rare = set[str]()  # codes

    def unjudged(self) -> ModelReport:
        X, y, names = self._dataset.X, self._dataset.y, self._names
        report = ModelReport(n_training=len(self._training), n_rows=len(self._rows))
        if len(names):
            n_rows = np.bincount(y[self._training], minlength=len(names))
            classes = pd.DataFrame({"label": names, "training_rows": n_rows})
            report = report.with_tables(classes=classes.iloc[self._by_rows])
        if len(names) == 2:
            report = replace(report, classes=tuple(names[:: 1 if self._metric.positive else -1]))
        if isinstance(X, pd.DataFrame):
            units = "rows" if self._dataset.groups is None else "groups"
            columns = described_columns(X, self._columns, self._fewest)
            return replace(report, units=units).with_tables(columns=columns)
        is_positive = (y == self._metric.positive).astype(np.int32)
        coverage = code_coverage(X, self._training, is_positive if report.classes else None)
        is_rare = coverage["n_patients"] < self._fewest
        self._rare = set(coverage.loc[is_rare, "code"])
        report = replace(report, units="patients", n_hidden=int(is_rare.sum()))
        return report.with_tables(coverage=coverage[~is_rare])

    @property
    def _columns(self) -> Sequence[LearnedColumn]:
        reader = self._dataset.row_reader
        return () if reader is None else reader.columns

    def judged(self, report: ModelReport, model: Any) -> ModelReport:
        dataset, rows, n_classes = self._dataset, self._rows, len(self._names)
        found, y, positive = predicted(model, dataset, rows), dataset.y[rows], self._metric.positive
        groups = None if dataset.groups is None else dataset.groups[rows]
        also = ("auroc", "neg_brier_score") if report.classes and found.score is not None else ()
        metrics = [self._metric, *(metric_named(name, positive) for name in also)]
        judge = partial(loss_with_interval, n_classes=n_classes, seed=self._seed)
        intervals = {metric.name: judge(metric, y, found, groups) for metric in metrics}
        report = replace(report, intervals=intervals)
        if not n_classes:
            actual = y.astype(np.float64)
            return report.with_tables(
                by_predicted=errors_of_bins(actual, found.label, found.label),
                by_actual=errors_of_bins(actual, found.label, actual),
                residuals=residual_counts(actual, found.label),
            )
        quality = class_quality(y, found.label, self._names)
        classes = report.tables["classes"].merge(quality.rename(columns={"rows": "test_rows"}))
        shown = self._names[self._by_rows[:_MOST_CONFUSED]]
        pairs = pd.DataFrame({"actual": self._names[y], "predicted": self._names[found.label]})
        confusion = pairs[pairs.isin(shown).all(axis=1)].value_counts().rename("rows").reset_index()
        report = report.with_tables(classes=classes, confusion=confusion)
        if found.score is None:
            return report
        if report.classes and found.are_probabilities:
            bins = calibration(y == positive, found.score[:, positive])
            report = report.with_tables(calibration=bins)
        with_curves = [positive] if report.classes else self._by_rows[:_MOST_CURVES]
        curves = [
            class_curve(y == c, found.score[:, c]).assign(label=self._names[c])
            for c in with_curves
            if 0 < np.count_nonzero(y == c) < len(y)
        ]
        return report.with_tables(curves=pd.concat(curves)) if curves else report

    def with_effects(
        self, report: ModelReport, model: Any, about: Mapping[str, Any]
    ) -> ModelReport:
        members, dataset, metric = about["members"], self._dataset, self._metric
        judging = (
            metric_named("auroc", metric.positive) if report.intervals.get("auroc") else metric
        )
        heaviest = max(range(len(members)), key=lambda k: float(members[k]["weight"]))
        pipeline = model.members_[heaviest] if len(members) > 1 else model
        while isinstance(pipeline, ClassEnsemble | NumberEnsemble):  # models of folds
            pipeline = pipeline.members_[0]
        rng, rows, n_classes = np.random.default_rng(self._seed), self._rows, len(self._names)
        # Up to half of the sample is from each of two classes.
        sides = [rows[dataset.y[rows] == i] for i in range(2)] if report.classes else [rows]
        n_of_side = _SAMPLE[dataset.kind] // len(sides)
        sample = np.sort(np.concatenate([rng.permutation(side)[:n_of_side] for side in sides]))
        y, some = dataset.y[sample], dataset.rows(sample)
        answers = [metric.positive] if report.classes else self._by_rows[:_MOST_DEPENDENCES]

        def scores_of(found: Predictions) -> Array:
            if not n_classes:
                return found.label[:, None]
            scores = np.eye(n_classes)[found.label] if found.score is None else found.score
            return scores[:, answers]

        def loss_of(found: Predictions) -> float:
            return judging.loss(y, found, n_classes)

        if isinstance(some, EventRows):
            given, descriptions = ModelInput.of_events(pipeline, some), some.descriptions()
        else:
            given, descriptions = ModelInput.of_table(pipeline, some, self._columns), {}
        judge = dataset.learned_classes, scores_of
        effects, n = column_effects(given, *judge, loss_of, self._seed, _SECONDS[dataset.kind])
        effects = effects[~effects["code"].isin(self._rare)]
        plain = effects["code"].str.removesuffix("*").str.removesuffix(PARENT_ENDING)
        described = [descriptions.get(code, "") for code in plain]
        report = replace(
            report.with_tables(effects=effects.assign(description=described)),
            effects_of=members[heaviest]["trial"],
            n_sample=len(y),
            n_codes=n,
            measure=judging.name,
        )
        columns = {one.name: one for one in self._columns if one.kind != "text"}
        first = effects.loc[effects["strength"] > 0, "code"].unique()
        if shown := [columns[code] for code in first if code in columns][:_MOST_DEPENDENCES]:
            matrix = dataset.rows(rng.permutation(rows)[:_DEPENDENCE_ROWS])
            given, labels = (
                replace(given, matrix=matrix),
                self._names[answers] if n_classes else [""],
            )
            curves = [dependence(given, column, *judge, labels) for column in shown]
            report = report.with_tables(dependence=pd.concat(curves))
        return report


def _reason(error: Exception) -> str:
    """Return the reason for a missing part; errors of a lost store are raised again."""
    if isinstance(error, StoreLost | StoreRefused) and not isinstance(error, RecordDamaged):
        raise error
    return masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])
