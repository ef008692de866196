"""The final model on its test rows, as a report has it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow_studies import plan_of, tell
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from studies import context_of, store_of
from worlds import evaluation

from prefect_tune.deployments.report.judged_model import model_report
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, load_split
from prefect_tune.tasks.final.ensemble import ClassEnsemble


class Fails:
    """A model that cannot predict."""

    classes_ = (False, True)

    def predict(self, X: Any) -> Any:  # noqa: ARG002
        raise MemoryError("no room for postgresql://me:secret@host/d")


@pytest.fixture
def study(tmp_path: Path) -> Iterator[tuple[ArtifactStore, StudyPlan]]:
    """A study of events without a model."""
    made = context_of(tmp_path, events=True)
    store = store_of(made)
    plan = plan_of(
        made, data=str(tmp_path / "meds"), target=None, labels="labels/task", data_name="events"
    )
    Ledger(store.database).create_study("test", made.problem.to_json(), plan.to_json())
    yield store, replace(plan, problem=made.problem)
    store.close()


def keep(store: ArtifactStore, plan: StudyPlan, *models: Any, weights: tuple[float, ...]) -> Any:
    model = models[0] if len(models) == 1 else ClassEnsemble.of_fitted(models, weights)
    members = [{"trial": k, "weight": weight} for k, weight in enumerate(weights)]
    about = {"dataset": plan.problem.dataset, "trial": 0, "members": members}
    store.records.put(model_record("test"), {"model": model, "about": about}, "test")
    with Study.opened(store, "test", plan) as study:
        for _ in members:
            tell(study, evaluation(10.0))
    return model


def fitted(store: ArtifactStore, plan: StudyPlan, aggregations: str) -> Any:
    dataset = load_dataset(store, plan.problem.dataset)
    windows = EventWindows(aggregations=aggregations, levels="code")
    return make_pipeline(windows, LogisticRegression()).fit(dataset.X, dataset.labels)


def test_without_a_model_there_is_the_coverage(study) -> None:
    report = model_report(*study[:1], "test", study[1])
    assert (report.auroc, report.effects, report.problem) == (None, None, "")
    assert "B" in {of.code for of in report.coverage}


def test_a_model_is_judged_on_the_test_rows_over_patients(study) -> None:
    store, plan = study
    model = keep(store, plan, fitted(store, plan, "count"), weights=(1.0,))
    report = model_report(store, "test", plan)
    dataset = load_dataset(store, plan.problem.dataset)
    rows = load_split(store, plan.problem.split).held_out(REFIT)
    score = model.predict_proba(dataset.X.take(rows))[:, 1]
    assert report.auroc.value == pytest.approx(roc_auc_score(dataset.y[rows], score))
    assert (report.n_rows, report.auroc.n_units) == (
        len(rows),
        len(np.unique(dataset.groups[rows])),
    )
    assert (report.units, report.classes) == ("patients", ("False", "True"))
    assert sum(b.n for b in report.calibration.bins) == len(rows)
    [of_a] = [of for of in report.effects.codes if of.code == "A"]
    assert (report.measure, report.effects_of) == ("auroc", 0)
    assert of_a.strength > 0
    assert of_a.columns[0].direction > 0.5
    assert set(report.coverage[0].by_class) == {1.0}


def test_the_heaviest_member_of_an_ensemble_has_the_effects(study) -> None:
    store, plan = study
    light, heavy = (fitted(store, plan, what) for what in ("count", "count_recency"))
    of_folds = ClassEnsemble.of_fitted([heavy, heavy])
    keep(store, plan, light, of_folds, weights=(0.3, 0.7))
    report = model_report(store, "test", plan)
    assert report.effects_of == 1
    columns = {c.column for of in report.effects.codes for c in of.columns}
    assert "A: recency" in columns


def test_a_model_that_cannot_predict_is_a_reason_and_the_rest_stays(study) -> None:
    store, plan = study
    keep(store, plan, Fails(), weights=(1.0,))
    report = model_report(store, "test", plan)
    assert "MemoryError" in report.problem
    assert "secret" not in report.problem
    assert report.auroc is None
    assert report.coverage


def test_data_that_are_gone_are_a_reason(study) -> None:
    store, plan = study
    load_dataset.cache_clear()
    gone = replace(plan, problem=replace(plan.problem, dataset="0" * 64))
    report = model_report(store, "test", gone)
    assert report.problem
    assert report.coverage == ()
