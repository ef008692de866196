"""A model that is the mean of the folds' models, where no time is left to fit on all rows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from finished.searched import Here, searched
from flow_studies import changed
from observing import Heard
from sklearn.pipeline import Pipeline
from user_spaces import PRELUDE

from prefect_tune.flows.ending import final_model as ending
from prefect_tune.flows.ending.final_model import fit_final_model
from prefect_tune.flows.ending.refitting import can_average_folds
from prefect_tune.flows.options.values import EnsembleRule
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.results.exported import export
from prefect_tune.flows.results.predict import final_model
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.path_run import PathRun

pytestmark = pytest.mark.slow

FOLDS = 3


@dataclass
class Workers(Here):
    """Workers that are this process.

    Attributes:
        begun: Names of the tasks that were run.
    """

    begun: list[str] = field(default_factory=list)

    def run(self, task: Any, parameters: dict[str, Any], **options: Any) -> Any:
        check: Callable[[], None] = options.get("check", lambda: None)
        check()
        self.begun.append(task.name)
        return super().run(task, parameters)


@dataclass
class Ended:
    """A study whose search has ended."""

    store: ArtifactStore
    name: str
    workers: Workers = field(default_factory=Workers)
    heard: Any = field(default_factory=Heard)

    def end(self, *seconds: float, **plan: Any) -> dict[str, Any]:
        """Fit the final model; the seconds that are left at each look, the last one for good."""
        looks = iter(seconds)
        left = [0.0]

        def seconds_left() -> float:
            left[0] = next(looks, left[0])
            return left[0]

        with Study.opened(self.store, self.name) as study:
            study.plan = changed(study.plan, **plan)
            context = StudyContext(self.name, study.problem, self.store.address)
            arguments: Any = (study, self.workers, context, self.heard)
            fit_final_model(*arguments, seconds_left)
        return read_study(self.store, self.name).to_json()

    def folds(self) -> list[Any]:
        """The pipelines of the best trial's folds, as the cache has them."""
        with Study.opened(self.store, self.name) as study:
            context = StudyContext(self.name, study.problem, self.store.address)
            run = PathRun(context, study.incumbent.query)
        for position in range(len(run.steps)):
            run.run(position)
        return [Pipeline([(n.step, n.part("estimator")) for n in run.nodes(f)]) for f in run.folds]


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    found = searched(
        tmp_path, trials=3, fit=False, data="sklearn:wine", folds=FOLDS, space="modern", seed=1
    )
    return Ended(found.store, found.name)


def looked_at(folder: Path) -> Ended:
    """A study that has looked at a ninth of the rows, of a model that counts those it has."""
    folder.mkdir(exist_ok=True)
    code, file = "sklearn.neighbors.KNeighborsClassifier", folder / "near.py"
    file.write_text(
        f'{PRELUDE}\nspace = models(one("near", "{code}", Integer("leaf_size", (9, 99))))'
    )
    found = searched(
        folder, trials=1, fit=False, data="sklearn:digits", folds=FOLDS, space=f"{file}:space",
        method="halving", option={"fidelity": "subset"}, seed=1,
    )  # fmt: skip
    return Ended(found.store, found.name)


def test_without_time_for_a_refit_the_model_is_the_mean_of_the_folds(ended) -> None:
    summary = ended.end(-2.0)
    assert summary["model_of_folds"]
    assert summary["test_loss"] is not None
    assert ended.workers.begun == ["refit", "score"]
    model, about = final_model(ended.store, ended.name)
    assert len(about["members"]) == 1
    with Study.opened(ended.store, ended.name) as study:
        X = load_dataset(ended.store, study.problem.dataset).X
    mean = np.mean([pipeline.predict_proba(X) for pipeline in ended.folds()], axis=0)
    np.testing.assert_allclose(model.predict_proba(X), mean)


def test_under_constraints_the_model_of_one_fold_replaces_the_refit(tmp_path) -> None:
    found = searched(
        tmp_path, trials=2, fit=False, data="sklearn:wine", folds=FOLDS, space="small", seed=1,
        constraint=["latency_us<=1e9"],
    )  # fmt: skip
    ended = Ended(found.store, found.name)
    assert ended.end(-2.0)["model_of_folds"]
    model, _ = final_model(ended.store, ended.name)
    with Study.opened(ended.store, ended.name) as study:
        X = load_dataset(ended.store, study.problem.dataset).X
    np.testing.assert_array_equal(model.predict_proba(X), ended.folds()[0].predict_proba(X))


def test_a_refit_that_takes_too_long_is_ended_and_the_folds_take_its_place(ended) -> None:
    summary = ended.end(1e3, 1e3, 1e3, -1.0)
    assert summary["model_of_folds"]
    assert summary["test_loss"] is not None


def test_a_later_session_with_time_refits_what_was_a_mean_of_folds(ended) -> None:
    ended.end(-2.0)
    summary = ended.end(1e3)
    assert not summary["model_of_folds"]
    assert isinstance(final_model(ended.store, ended.name)[0], Pipeline)


def test_members_of_an_ensemble_are_means_of_their_folds(ended) -> None:
    summary = ended.end(-2.0, ensemble=EnsembleRule("agnostic"))
    model, about = final_model(ended.store, ended.name)
    assert summary["model_of_folds"]
    assert len(model.members_) == len(about["members"]) > 1
    assert all(len(member.members_) == FOLDS for member in model.members_)
    assert summary["single_best_test_loss"] is not None


def test_a_mean_of_folds_is_exported_like_any_model(ended) -> None:
    ended.end(-2.0)
    exported = export(ended.store, ended.name, "pickle")
    assert exported.rows_checked > 0


def test_where_the_cache_has_lost_a_model_the_refit_takes_its_time(ended) -> None:
    ended.store.prune(0)
    summary = ended.end(-2.0)
    assert not summary["model_of_folds"]
    assert isinstance(final_model(ended.store, ended.name)[0], Pipeline)


def test_models_of_folds_need_a_cache_and_no_early_stopping(ended) -> None:
    with Study.opened(ended.store, ended.name) as study:
        best = [study.incumbent]
        assert can_average_folds(study, best)
        plan = study.plan
        study.plan = changed(plan, no_cache=True)
        assert not can_average_folds(study, best)
        study.plan = plan
        curve = replace(best[0].evaluation, curve=(1.0, 0.5), fold_curves=((1.0, 0.5),) * FOLDS)
        assert not can_average_folds(study, [replace(best[0], evaluation=curve)])


@pytest.fixture
def slow_refits(monkeypatch) -> None:
    """A refit on all rows takes 50 s."""

    monkeypatch.setattr(ending, "refit_seconds", lambda *_: 50.0)


@pytest.mark.usefixtures("slow_refits")
def test_where_no_more_rows_fit_the_time_the_models_of_the_folds_do(tmp_path) -> None:
    summary = looked_at(tmp_path).end(3.0)
    assert summary["model_of_folds"]


@pytest.mark.usefixtures("slow_refits")
def test_time_for_a_refit_is_held_back_only_where_it_fits(ended) -> None:
    with Study.opened(ended.store, ended.name) as study:
        assert 50 < ending.ending_seconds(study, 1, 100.0) < 60
        assert ending.ending_seconds(study, 1, 20.0) < 10
        study.plan = changed(study.plan, no_cache=True)
        assert ending.ending_seconds(study, 1, 20.0) == 20


def test_time_for_a_short_refit_and_the_choice_of_an_ensemble_is_held_back(
    ended, monkeypatch
) -> None:
    monkeypatch.setattr(ending, "refit_seconds", lambda *_: 4.5)
    monkeypatch.setattr(ending, "choosing_seconds", lambda *_: 7.0)
    with Study.opened(ended.store, ended.name) as study:
        assert 6.5 <= ending.ending_seconds(study, 1, 2.0) < 7  # more than the share it may have
        study.plan = changed(study.plan, budget=200.0)
        monkeypatch.setattr(ending, "refit_seconds", lambda *_: 9.0)
        assert 11 <= ending.ending_seconds(study, 1, 2.0) < 12
        study.plan = changed(study.plan, budget=60.0, ensemble=EnsembleRule("agnostic"))
        assert 18 <= ending.ending_seconds(study, 1, 20.0) < 19


@pytest.mark.usefixtures("slow_refits")
def test_time_for_the_scores_of_the_test_rows_is_held_back(ended, monkeypatch) -> None:
    monkeypatch.setattr(Costs, "held_out_seconds", lambda *_: 16.0)
    with Study.opened(ended.store, ended.name) as study:
        assert 70 < ending.ending_seconds(study, 1, 100.0) < 80
    assert ended.end(55.0)["model_of_folds"]


@pytest.mark.usefixtures("slow_refits")
def test_where_folds_may_not_be_averaged_the_refit_takes_its_time(ended) -> None:
    summary = ended.end(-2.0, no_cache=True)
    assert not summary["model_of_folds"]
    assert any("more than the budget has left" in note for note in ended.heard.notes)
