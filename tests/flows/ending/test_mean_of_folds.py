"""A model that is the mean of the fold models, if no time is left to fit on all rows."""

import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished.searched import Here, searched
from flow_studies import changed
from observing import Heard
from sklearn.pipeline import Pipeline

from prefect_tune.flows.ending import final_model as ending
from prefect_tune.flows.ending.final_model import fit_final_model
from prefect_tune.flows.ending.refitting import can_average_folds
from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.results.exported import export
from prefect_tune.flows.results.predict import final_model
from prefect_tune.flows.study.study import Study
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.path_run import PathRun

pytestmark = pytest.mark.slow

FOLDS = 3
WINE = {"data": "sklearn:wine", "folds": FOLDS, "seed": 1, "fit": False}


@dataclass
class Ended:
    """A study whose search has ended."""

    store: ArtifactStore
    workers: Here = field(default_factory=Here)
    heard: Any = field(default_factory=Heard)

    def end(self, *seconds: float, **plan: Any) -> dict[str, Any]:
        """Fit the final model; `seconds` are the seconds left at successive checks."""
        looks = iter(seconds)
        left = [0.0]

        def seconds_left() -> float:
            left[0] = next(looks, left[0])
            return left[0]

        with self.opened() as study:
            study.plan = changed(study.plan, **plan)
            context = StudyContext("s", study.problem, self.store.address)
            arguments: Any = (study, self.workers, context, self.heard)
            fit_final_model(*arguments, seconds_left)
        return read_study(self.store, "s").to_json()

    def opened(self) -> Any:
        return Study.opened(self.store, "s")

    @property
    def model(self) -> Any:
        return final_model(self.store, "s")[0]

    def folds(self) -> list[Any]:
        """Return the pipelines of the best trial's folds, from the cache."""
        with self.opened() as study:
            context = StudyContext("s", study.problem, self.store.address)
            run = PathRun(context, study.incumbent.query)
        for position in range(len(run.steps)):
            run.run(position)
        return [Pipeline([(n.step, n.part("estimator")) for n in run.nodes(f)]) for f in run.folds]

    def rows(self) -> Any:
        with self.opened() as study:
            return load_dataset(self.store, study.problem.dataset).X


@pytest.fixture(autouse=True)
def long_refit(monkeypatch) -> None:
    """Refits are predicted to take 50 s."""
    monkeypatch.setattr(ending, "refit_seconds", lambda *_: 50.0)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    """The folder of a study, copied for each test."""
    folder = tmp_path_factory.mktemp("original")
    searched(folder, trials=3, space="modern", **WINE).store.close()
    return folder


@pytest.fixture
def ended(original, tmp_path: Path) -> Ended:
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return Ended(ArtifactStore(StoreAddress(str(tmp_path / "store"))))


def test_model_is_the_mean_of_the_fold_models_if_no_time_is_left_for_a_refit(ended) -> None:
    summary = ended.end(-2.0)
    assert summary["model_of_folds"]
    assert summary["test_loss"] is not None
    assert ended.workers.begun == ["refit", "score"]
    X = ended.rows()
    mean = np.mean([pipeline.predict_proba(X) for pipeline in ended.folds()], axis=0)
    np.testing.assert_allclose(ended.model.predict_proba(X), mean)
    assert export(ended.store, "s", "pickle").rows_checked > 0
    # A later session with time refits it.
    assert not ended.end(1e3)["model_of_folds"]
    assert isinstance(ended.model, Pipeline)


def test_model_of_a_single_fold_replaces_the_refit_under_constraints(tmp_path) -> None:
    given = {"space": "small", "constraint": ["latency_us<=1e9"], **WINE}
    ended = Ended(searched(tmp_path, trials=2, **given).store)
    assert ended.end(-2.0)["model_of_folds"]
    X = ended.rows()
    np.testing.assert_array_equal(ended.model.predict_proba(X), ended.folds()[0].predict_proba(X))


def test_short_refit_is_done_even_if_no_time_is_left(ended, monkeypatch) -> None:
    monkeypatch.setattr(ending, "refit_seconds", lambda *_: 4.5)
    assert not ended.end(-2.0)["model_of_folds"]


def test_overlong_refit_is_ended_and_replaced_by_the_fold_models(ended) -> None:
    summary = ended.end(1e3, 1e3, 1e3, -1.0)
    assert summary["model_of_folds"]
    assert summary["test_loss"] is not None


def test_refit_runs_despite_the_limit_if_the_cache_lost_a_fold_model(ended) -> None:
    ended.store.prune(0)
    assert not ended.end(-2.0)["model_of_folds"]
    assert isinstance(ended.model, Pipeline)


def test_fold_models_are_used_only_with_a_cache_and_without_early_stopping(ended) -> None:
    with ended.opened() as study:
        best = study.incumbent
        assert can_average_folds(study, [best])
        curve = replace(best.evaluation, curve=(1.0, 0.5), fold_curves=((1.0, 0.5),) * FOLDS)
        assert not can_average_folds(study, [replace(best, evaluation=curve)])
        study.plan = changed(study.plan, no_cache=True)
        assert not can_average_folds(study, [best])
    assert not ended.end(-2.0, no_cache=True)["model_of_folds"]


@pytest.mark.parametrize(
    ("refit", "plan", "expected"),
    [
        (50.0, {}, (100.0, 50, 60)),
        (50.0, {}, (20.0, 0, 10)),  # it does not fit, and the folds are averaged
        (50.0, {"no_cache": True}, (20.0, 20, 20)),
        (4.5, {}, (2.0, 6.5, 7)),  # a short refit, which is more than the share it may have
        (9.0, {"budget": 200.0}, (2.0, 11, 12)),
        (9.0, {"budget": 60.0, "ensemble": EnsembleRule("agnostic")}, (40.0, 36, 37)),
        # Three refits do not fit, but the best trial's does.
        (9.0, {"budget": 60.0, "ensemble": EnsembleRule("agnostic")}, (20.0, 18, 19)),
    ],
)
def test_time_for_refit_and_ensemble_choice_is_reserved_if_possible(
    ended, monkeypatch, refit, plan, expected
) -> None:
    most, low, high = expected
    monkeypatch.setattr(ending, "refit_seconds", lambda _, trials, __: refit * len(trials))
    monkeypatch.setattr(ending, "choosing_seconds", lambda *_: 7.0)
    with ended.opened() as study:
        study.plan = changed(study.plan, **plan)
        assert low <= ending.ending_seconds(study, 1, most) <= high
