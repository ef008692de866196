"""The final model on its test rows, in a report."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from flow_studies import plan_of, tell
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from studies import context_of, store_of
from worlds import evaluation

from prefect_tune.deployments.report.judged_model import ModelReport, model_report
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.final.ensemble import ClassEnsemble


class Fails:
    """A model that cannot predict."""

    classes_ = (False, True)

    def predict(self, X: Any) -> Any:  # noqa: ARG002
        raise MemoryError("no room for postgresql://me:secret@host/d")


@dataclass(frozen=True)
class Judged:
    """A study of events without a model, which may get one."""

    store: ArtifactStore
    plan: StudyPlan

    @property
    def dataset(self) -> Dataset:
        return load_dataset(self.store, self.plan.problem.dataset)

    def fitted(self, aggregations: str) -> Any:
        windows = EventWindows(aggregations=aggregations, levels="code")
        pipeline = make_pipeline(windows, LogisticRegression())
        return pipeline.fit(self.dataset.X, self.dataset.labels)

    def report(self, *models: Any, weights: tuple[float, ...] = (1.0,)) -> ModelReport:
        """Return the report of a model, or of an ensemble of several."""
        model = models[0] if len(models) == 1 else ClassEnsemble.of_fitted(models, weights)
        members = [{"trial": k, "weight": weight} for k, weight in enumerate(weights)]
        about = {"dataset": self.plan.problem.dataset, "trial": 0, "members": members}
        self.store.records.put(model_record("test"), {"model": model, "about": about}, "test")
        with Study.opened(self.store, "test", self.plan) as study:
            for _ in members:
                tell(study, evaluation(10.0))
        return model_report(self.store, "test", self.plan)


@pytest.fixture
def study(tmp_path) -> Iterator[Judged]:
    made = context_of(tmp_path, events=True)
    store = store_of(made)
    data = {"data": str(tmp_path / "meds"), "labels": "labels/task", "data_name": "events"}
    plan = plan_of(made, target=None, **data)
    Ledger(store.database).create_study("test", made.problem.to_json(), plan.to_json())
    yield Judged(store, plan)
    store.close()


def test_model_is_judged_on_the_test_rows_with_patients_as_units(study) -> None:
    model, dataset = study.fitted("count"), study.dataset
    report = study.report(model)
    rows = load_split(study.store, study.plan.problem.split).held_out(REFIT)
    score = model.predict_proba(dataset.X.take(rows))[:, 1]
    assert report.auroc.value == pytest.approx(roc_auc_score(dataset.y[rows], score))
    assert report.auroc.n_units == len(np.unique(dataset.groups[rows]))
    assert report.n_rows == sum(b.n for b in report.calibration.bins) == len(rows)
    assert (report.units, report.classes) == ("patients", ("False", "True"))
    [of_a] = [of for of in report.effects.codes if of.code == "A"]
    assert (report.measure, report.effects_of) == ("auroc", 0)
    assert of_a.strength > 0
    assert of_a.columns[0].direction > 0.5
    assert set(report.coverage[0].by_class) == {1.0}


def test_effects_are_taken_from_the_heaviest_ensemble_member(study) -> None:
    light, heavy = map(study.fitted, ("count", "count_recency"))
    of_folds = ClassEnsemble.of_fitted([heavy, heavy])
    report = study.report(light, of_folds, weights=(0.3, 0.7))
    assert report.effects_of == 1
    assert "A: recency" in {c.column for of in report.effects.codes for c in of.columns}


def test_missing_quality_section_shows_a_reason(study) -> None:
    without = model_report(study.store, "test", study.plan)
    assert (without.auroc, without.effects, without.problem) == (None, None, "")
    assert "B" in {of.code for of in without.coverage}
    report = study.report(Fails())
    assert (report.auroc, report.coverage) == (None, without.coverage)
    assert "MemoryError" in report.problem
    assert "secret" not in report.problem
    load_dataset.cache_clear()
    problem = replace(study.plan.problem, dataset="0" * 64)  # its data are gone
    gone = model_report(study.store, "test", replace(study.plan, problem=problem))
    assert gone.problem
    assert gone.coverage == ()
