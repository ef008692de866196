"""How well the final model predicts the test rows, what it makes of codes, and their coverage.

The model predicts here as `export` has it predict for its card: test predictions are not stored.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.predict import balanced_weight, final_model
from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.key import model_record
from prefect_tune.storage.privacy.masking import masked
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.store import ArtifactStore
from prefect_tune.storage.waiting.outage import StoreLost
from prefect_tune.tasks.catalogue.event_windows import PARENT_ENDING
from prefect_tune.tasks.data.code_coverage import CodeCoverage, code_coverage
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.split import REFIT, TEST, Split, load_split
from prefect_tune.tasks.ensembling.model import ClassEnsemble, NumberEnsemble
from prefect_tune.tasks.fitting.column_effects import ColumnEffects, column_effects
from prefect_tune.tasks.fitting.final_scoring import predicted
from prefect_tune.tasks.objective.metric import Metric
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.objective.risk import weighted_areas
from prefect_tune.tasks.objective.two_classes import (
    Auroc,
    Calibration,
    auroc_with_interval,
    calibration,
)
from prefect_tune.tasks.threads import one_thread
from prefect_tune.tasks.user_code import exits_as_errors

_SAMPLE = 2_000
"""Test rows whose columns are permuted."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The final model on the test rows, and codes of patient events.

    Attributes:
        problem: Reason why the model could not be judged; empty if it was, or if there is none.
        n_rows: Test rows.
        units: Units of the bootstraps: `patients`, `groups` or `rows`.
        classes: The classes, the positive one last, if there are two.
        auroc: AUROC; None without scores of two classes.
        calibration: Calibration; None without probabilities of two classes.
        is_balanced: Whether classes were weighted for balance in training, by any member.
        effects: Effects of columns; None if not of events.
        effects_of: Trial whose pipeline has these effects; None if there are none.
        effects_problem: Reason why the effects are not known; empty if they are.
        measure: Name of the loss that they raise.
        descriptions: Descriptions of the codes of the effects.
        coverage: Codes of the training rows; empty if not of events.
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
    effects_problem: str = ""
    measure: str = ""
    descriptions: Mapping[str, str] = field(default_factory=dict)
    coverage: tuple[CodeCoverage, ...] = ()


def model_report(store: ArtifactStore, study: str, plan: StudyPlan) -> ModelReport:
    """Judge the final model of a study on its test rows.

    Whatever goes wrong is the reason why something is missing.

    Raises:
        StoreLost: If the store is lost.
        StoreRefused: If the store refuses to be read.
    """
    try:
        rows = _TestRows.of(store, plan)
    except Exception as error:  # of any kind: data may be gone, and metrics users' own
        return ModelReport(_reason(error))
    report = ModelReport(
        n_rows=len(rows.rows), units=rows.units, classes=rows.classes, coverage=rows.coverage()
    )
    X = rows.dataset.X
    is_judged = bool(report.classes) or isinstance(X, EventRows)
    if not (is_judged and report.n_rows and store.records.exists(model_record(study))):
        return report
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as when the model was fitted
        try:
            with exits_as_errors():
                model, about = final_model(store, study)
                balanced = balanced_weight(store, study, plan, about) > 0
                report = rows.judged(replace(report, is_balanced=balanced), model)
        except Exception as error:  # of any kind: the model may be a user's own
            return replace(report, problem=_reason(error))
        if not isinstance(X, EventRows):
            return report
        try:
            with exits_as_errors():
                return rows.with_effects(report, X, model, about)
        except Exception as error:  # likewise
            return replace(report, effects_problem=_reason(error))


@dataclass(frozen=True)
class _TestRows:
    """The test rows of a study.

    Attributes:
        dataset: The data.
        split: Its test rows and others.
        metric: The study's metric, which names the positive class.
        seed: Source of bootstraps, samples and permutations.
    """

    dataset: Dataset
    split: Split
    metric: Metric
    seed: int

    @classmethod
    def of(cls, store: ArtifactStore, plan: StudyPlan) -> Self:
        problem = plan.problem
        problem.find_space()  # a user's classes and metric come with it
        dataset, split = load_dataset(store, problem.dataset), load_split(store, problem.split)
        return cls(dataset, split, problem.find_metric(), plan.seed)

    @property
    def rows(self) -> NDArray[np.intp]:
        return self.split.held_out(REFIT)

    @property
    def units(self) -> str:
        if self.dataset.kind == "events":
            return "patients"
        return "rows" if self.dataset.groups is None else "groups"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of two classes, the positive one last; empty for other targets."""
        names = tuple(map(str, self.dataset.classes))
        if len(names) != 2:
            return ()
        return names if self.metric.positive else names[::-1]

    def coverage(self) -> tuple[CodeCoverage, ...]:
        """Return the coverage of the codes of the training rows."""
        X = self.dataset.X
        if not isinstance(X, EventRows):
            return ()
        training = np.flatnonzero(self.split.fold != TEST)
        side = (self.dataset.y == self.metric.positive).astype(np.int32) if self.classes else None
        return tuple(code_coverage(X, training, side))

    def judged(self, report: ModelReport, model: Any) -> ModelReport:
        """Return a report with AUROC and calibration, as far as the model has them."""
        if not report.classes:
            return report
        dataset, rows, positive = self.dataset, self.rows, self.metric.positive
        found = predicted(model, dataset, rows)
        if found.score is None:
            return report
        groups = None if dataset.groups is None else dataset.groups[rows]
        is_positive, score = dataset.y[rows] == positive, found.score[:, positive]
        return replace(
            report,
            auroc=auroc_with_interval(is_positive, score, groups, self.seed),
            calibration=calibration(is_positive, score) if found.are_probabilities else None,
        )

    def with_effects(
        self, report: ModelReport, X: EventRows, model: Any, about: Mapping[str, Any]
    ) -> ModelReport:
        """Return a report with the effects of columns on the heaviest member of the model."""
        members, dataset, metric = about["members"], self.dataset, self.metric
        heaviest = max(range(len(members)), key=lambda k: float(members[k]["weight"]))
        pipeline = model.members_[heaviest] if len(members) > 1 else model
        while isinstance(pipeline, ClassEnsemble | NumberEnsemble):  # models of the folds
            pipeline = pipeline.members_[0]
        by_class, n_classes = report.auroc is not None, len(dataset.classes)
        sample = self._sample(by_class=by_class)
        y = dataset.y[sample]
        is_positive, once = y == metric.positive, np.ones((1, len(y)))

        def score_of(found: Predictions) -> NDArray[np.float64]:
            if not n_classes:
                return found.label
            if n_classes > 2:
                return np.zeros(len(y))  # no class is the one that columns point to
            if found.score is None:
                return (found.label == metric.positive).astype(np.float64)
            return found.score[:, metric.positive]

        def loss_of(found: Predictions) -> float:
            if by_class:
                return 1 - float(weighted_areas(score_of(found), is_positive, once)[0])
            return metric.loss(y, found, n_classes)

        classes = np.array(dataset.classes)
        effects = column_effects(pipeline, X.take(sample), classes, loss_of, score_of, self.seed)
        known = X.descriptions()
        codes = [effect.code for effect in effects.codes]
        return replace(
            report,
            effects=effects,
            effects_of=members[heaviest]["trial"],
            measure="auroc" if by_class else metric.name,
            descriptions={
                code: known[name]
                for code in codes
                if (name := code.removesuffix("*").removesuffix(PARENT_ENDING)) in known
            },
        )

    def _sample(self, *, by_class: bool) -> NDArray[np.intp]:
        """Return some of the rows in order; of each of two classes up to a half."""
        rng, rows = np.random.default_rng(self.seed), self.rows
        if not by_class:
            return np.sort(rng.permutation(rows)[:_SAMPLE])
        sides = (rng.permutation(rows[self.dataset.y[rows] == i]) for i in range(2))
        return np.sort(np.concatenate([side[: _SAMPLE // 2] for side in sides]))


def _reason(error: Exception) -> str:
    """Return why something is missing; errors of a lost store are raised again."""
    if isinstance(error, StoreLost | StoreRefused) and not isinstance(error, RecordDamaged):
        raise error
    return masked(f"{type(error).__name__}: {error}".split("\n", 1)[0])
