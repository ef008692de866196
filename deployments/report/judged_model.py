"""The final model on its test rows: AUROC, calibration, and effects and coverage of codes.

Test predictions are not stored, so the model predicts here as it does for the card of `export`.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    Auroc,
    Calibration,
    CodeCoverage,
    ColumnEffects,
    auroc_with_interval,
    calibration,
    code_coverage,
    column_effects,
)
from prefect_tune.tasks.final.refit import predicted
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.risk import weighted_areas
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.user_code import exits_as_errors

_SAMPLE = 2_000
"""Maximum number of test rows for permutations."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The final model on the test rows, and codes of patient events.

    Attributes:
        problem: Reason why the model or its effects could not be judged; empty if they were, or if
            the model is missing.
        n_rows: Number of test rows.
        units: Units of the bootstraps: `patients`, `groups` or `rows`.
        classes: The two classes, the positive one last; empty for other targets.
        auroc, calibration: Both None without scores or probabilities of two classes.
        is_balanced: Whether any member was trained with weights that balance the classes.
        effects, effects_of: Effects of columns, and the trial measured; None without events.
        measure: Name of the loss whose increase the effects measure.
        descriptions: Descriptions of the codes of the effects.
        coverage: Codes of the training rows; empty without events.
    """

    problem: str = ""
    n_rows: int = 0
    units: str = "rows"
    classes: tuple[str, ...] = ()
    auroc: Auroc | None = None
    calibration: Calibration | None = None
    is_balanced: bool = False
    effects: ColumnEffects | None = None
    effects_of: int | None = None
    measure: str = ""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    coverage: tuple[CodeCoverage, ...] = ()

    @property
    def is_judged(self) -> bool:
        """Whether scores of two classes were judged."""
        return self.auroc is not None or self.calibration is not None


def model_report(store: ArtifactStore, study: str, plan: StudyPlan) -> ModelReport:
    """Judge the final model on the test rows; only StoreLost and StoreRefused are raised."""
    problem = plan.problem
    try:
        problem.find_space()  # also loads the user's classes and metric
        dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
        rows = _TestRows(dataset, split, problem.find_metric(), plan.seed)
    except Exception as error:  # any class: data may be deleted, and metrics are user code
        return ModelReport(_reason(error))
    report, X = rows.unjudged(), dataset.X
    is_judged = bool(report.classes) or isinstance(X, EventRows)
    if not (is_judged and report.n_rows and store.records.exists(model_record(study))):
        return report
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as during fitting
        try:
            with exits_as_errors():
                model, about = final_model(store, study)
                balanced = balanced_weight(store, study, plan, about) > 0
                report = rows.judged(replace(report, is_balanced=balanced), model)
                if isinstance(X, EventRows):
                    report = rows.with_effects(report, X, model, about)
        except Exception as error:  # any class: the model may be user code
            report = replace(report, problem=_reason(error))
    return report


class _TestRows:
    """The test rows of a study, used to judge its model; all draws depend on `seed`."""

    def __init__(self, dataset: Dataset, split: Split, metric: Metric, seed: int) -> None:
        self._dataset, self._metric, self._seed = dataset, metric, seed
        self._rows, self._training = split.held_out(REFIT), np.flatnonzero(split.is_training)

    def unjudged(self) -> ModelReport:
        dataset, positive = self._dataset, self._metric.positive
        of_table = "rows" if dataset.groups is None else "groups"
        units = "patients" if dataset.kind == "events" else of_table
        names = tuple(map(str, dataset.classes))
        classes = () if len(names) != 2 else names if positive else names[::-1]
        coverage: tuple[CodeCoverage, ...] = ()
        if isinstance(dataset.X, EventRows):
            side = (dataset.y == positive).astype(np.int32) if classes else None
            coverage = tuple(code_coverage(dataset.X, self._training, side))
        return ModelReport(n_rows=len(self._rows), units=units, classes=classes, coverage=coverage)

    def judged(self, report: ModelReport, model: Any) -> ModelReport:
        if not report.classes:
            return report
        dataset, rows, positive = self._dataset, self._rows, self._metric.positive
        found = predicted(model, dataset, rows)
        if found.score is None:
            return report
        groups = None if dataset.groups is None else dataset.groups[rows]
        is_positive, score = dataset.y[rows] == positive, found.score[:, positive]
        return replace(
            report,
            auroc=auroc_with_interval(is_positive, score, groups, self._seed),
            calibration=calibration(is_positive, score) if found.are_probabilities else None,
        )

    def with_effects(
        self, report: ModelReport, X: EventRows, model: Any, about: Mapping[str, Any]
    ) -> ModelReport:
        members, dataset, metric = about["members"], self._dataset, self._metric
        heaviest = max(range(len(members)), key=lambda k: float(members[k]["weight"]))
        pipeline = model.members_[heaviest] if len(members) > 1 else model
        while isinstance(pipeline, ClassEnsemble | NumberEnsemble):  # models of folds
            pipeline = pipeline.members_[0]
        by_class, n_classes = report.auroc is not None, len(dataset.classes)
        rng, rows = np.random.default_rng(self._seed), self._rows
        # Up to half of the sample is from each of two classes.
        sides = [rows[dataset.y[rows] == i] for i in range(2)] if by_class else [rows]
        n_of_side = _SAMPLE // len(sides)
        sample = np.sort(np.concatenate([rng.permutation(side)[:n_of_side] for side in sides]))
        y = dataset.y[sample]
        is_positive, once = y == metric.positive, np.ones((1, len(y)))

        def score_of(found: Predictions) -> NDArray[np.float64]:
            if not n_classes:
                return found.label
            if n_classes > 2:
                return np.zeros(len(y))  # several classes have no common direction
            if found.score is None:
                return (found.label == metric.positive).astype(np.float64)
            return found.score[:, metric.positive]

        def loss_of(found: Predictions) -> float:
            if by_class:
                return 1 - float(weighted_areas(score_of(found), is_positive, once)[0])
            return metric.loss(y, found, n_classes)

        classes, known = dataset.learned_classes, X.descriptions()
        effects = column_effects(pipeline, X.take(sample), classes, loss_of, score_of, self._seed)
        names = {
            one.code: one.code.removesuffix("*").removesuffix(PARENT_ENDING)
            for one in effects.codes
        }
        return replace(
            report,
            effects=effects,
            effects_of=members[heaviest]["trial"],
            measure="auroc" if by_class else metric.name,
            descriptions={code: known[name] for code, name in names.items() if name in known},
        )


def _reason(error: Exception) -> str:
    """Return the reason for a missing part; errors of a lost store are raised again."""
    if isinstance(error, StoreLost | StoreRefused) and not isinstance(error, RecordDamaged):
        raise error
    return masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])
