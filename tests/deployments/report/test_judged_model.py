"""The final model on its test rows, in a report."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flow_studies import plan_of, tell
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from studies import context_of, store_of
from worlds import evaluation

from prefect_tune.deployments.report import judged_model as module
from prefect_tune.deployments.report.judged_model import ModelReport, model_report
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.ledger import Ledger
from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.dataset import Dataset, load_dataset
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import REFIT, TEST, Split, load_split
from prefect_tune.tasks.data.tables import frame_dataset
from prefect_tune.tasks.final.ensemble import ClassEnsemble
from prefect_tune.tasks.objective.metric import metric_named


class Follows:
    """A model that returns a column of numbers."""

    def predict(self, X: Any) -> Any:
        return X["x"].to_numpy()


class LevelOf:
    """A model of three classes without scores."""

    classes_ = np.array(["Ann", "high", "low"], dtype=object)

    def predict(self, X: Any) -> Any:
        return np.where(X["x"] > 0, "high", "low").astype(object)


class Fails:
    """A model that cannot predict."""

    classes_ = (False, True)

    def predict(self, X: Any) -> Any:  # noqa: ARG002
        raise MemoryError("no room for postgresql://me:secret@host/d")


@dataclass(frozen=True)
class Judged:
    """A study of events without a model; tests may add a model."""

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
        """Return the report of a model, or of an ensemble of several models."""
        model = models[0] if len(models) == 1 else ClassEnsemble.of_fitted(models, weights)
        members = [{"trial": k, "weight": weight} for k, weight in enumerate(weights)]
        about = {"dataset": self.plan.problem.dataset, "trial": 0, "members": members}
        self.store.records.put(model_record("test"), {"model": model, "about": about}, "test")
        with Study.opened(self.store, "test", self.plan) as study:
            for _ in members:
                tell(study, evaluation(10.0))
        return model_report(self.store, "test", self.plan, fewest=1)


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
    auroc, tables = report.intervals["auroc"], report.tables
    assert 1 - auroc.loss == pytest.approx(roc_auc_score(dataset.y[rows], score))
    assert auroc.n_units == len(np.unique(dataset.groups[rows]))
    assert report.n_rows == tables["calibration"]["n"].sum() == len(rows)
    assert tables["confusion"]["rows"].sum() == len(rows)
    assert (report.units, report.classes) == ("patients", ("False", "True"))
    of_a = tables["effects"][tables["effects"]["code"] == "A"]
    assert (report.measure, report.effects_of) == ("auroc", 0)
    assert (of_a["strength"] > 0).all()
    assert of_a["direction"].iloc[0] > 0.5
    assert set(tables["coverage"].iloc[0][["patients_of_0", "patients_of_1"]]) == {1.0}


def table_report(y: Any, model: Any, metric: str, n: int = 400) -> ModelReport:
    """Return the report of a model of a table with numbers, a free text and 100 test rows."""
    rng, words = np.random.default_rng(0), [f"word{k}" for k in range(30)]
    texts = [" ".join(rng.choice(words, 12)) for _ in range(n)]
    frame = pd.DataFrame({"x": rng.normal(size=n), "text": texts})
    dataset = frame_dataset(Source("", target="y"), frame.assign(y=y(frame["x"])))
    split = Split(np.where(np.arange(n) < 100, TEST, np.arange(n) % 3), 3, 0)
    report = ModelReport()
    rows = module._TestRows(report, dataset, split, metric_named(metric), 0)
    rows.describe(10)
    rows.judge(model)
    rows.measure_effects(model, [{"trial": 0, "weight": 1.0}])
    return report


def test_regression_has_three_measures_and_free_text_has_no_direction() -> None:
    report = table_report(lambda x: x + 1, Follows(), "r2")
    assert [*report.intervals] == ["r2", "neg_mean_absolute_error", "neg_root_mean_squared_error"]
    assert report.intervals["neg_mean_absolute_error"].loss == pytest.approx(1.0)
    direction = report.tables["effects"].groupby("code")["direction"].first()
    assert direction["x"] > 0.9
    assert np.isnan(direction["text"])


def test_rare_classes_are_in_no_table() -> None:
    def classes(x: Any) -> Any:
        named = np.where(x > 0, "high", "low").astype(object)
        named[[0, 1, 200]] = "Ann"
        return named

    report = table_report(classes, LevelOf(), "error")
    assert report.n_rare_classes == 1
    assert not any("Ann" in table.to_string() for table in report.tables.values())
    confusion = report.tables["confusion"]
    assert confusion[["actual", "predicted"]].drop_duplicates().shape == (4, 2)
    assert confusion["rows"].sum() == 98


def test_codes_of_few_patients_are_not_named(study) -> None:
    study.report(study.fitted("count"))
    tables = study.report(study.fitted("count")).tables
    fewest = int(tables["coverage"]["n_patients"].max())
    report = model_report(study.store, "test", study.plan, fewest)
    kept = report.tables["coverage"]
    assert (kept["n_patients"] >= fewest).all()
    assert report.n_hidden == len(tables["coverage"]) - len(kept) > 0
    hidden = set(tables["coverage"]["code"]) - set(kept["code"])
    assert not hidden & set(report.tables["effects"]["code"])


def test_effects_are_taken_from_the_heaviest_ensemble_member(study) -> None:
    light, heavy = map(study.fitted, ("count", "count_recency"))
    of_folds = ClassEnsemble.of_fitted([heavy, heavy])
    report = study.report(light, of_folds, weights=(0.3, 0.7))
    assert report.effects_of == 1
    assert "A: recency" in set(report.tables["effects"]["column"])


def test_reason_is_given_if_the_model_cannot_be_judged(study) -> None:
    without = model_report(study.store, "test", study.plan, fewest=1)
    assert (without.intervals, without.is_judged, without.problem) == ({}, False, "")
    assert "B" in set(without.tables["coverage"]["code"])
    report = study.report(Fails())
    assert not report.is_judged
    assert report.tables["coverage"].equals(without.tables["coverage"])
    assert "MemoryError" in report.problem
    assert "secret" not in report.problem
    load_dataset.cache_clear()
    problem = replace(study.plan.problem, dataset="0" * 64)  # its data are gone
    gone = model_report(study.store, "test", replace(study.plan, problem=problem), fewest=1)
    assert gone.problem
    assert gone.tables == {}
