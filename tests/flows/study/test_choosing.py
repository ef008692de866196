"""Ensembles chosen from what a study's trials predicted of the held-out rows."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inputs import write_table
from studies import context_of, draw, evaluate, store_of

from prefect_tune.flows.study import ensemble
from prefect_tune.flows.study.ensemble import choose_ensemble
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget
from prefect_tune.optimizers.trials.objective import Bootstraps
from prefect_tune.storage import Ledger
from prefect_tune.storage.key import predictions_record
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.quantity import Quantity, QuantityBound
from prefect_tune.tasks.problem import StudyContext

N_TRIALS = 12


def studied(context: StudyContext, name: str, n_trials: int, **changes: object) -> Iterator[Study]:
    """A study with so many complete trials."""
    context, store = replace(context, study=name), store_of(context)
    plan = StudyPlan(
        source=Source("table.csv", target="target"), data_name="table", problem=context.problem,
        folds=3, holdout=None, test_size=0.2, positive=None, chance_loss=40.0, method="random",
    )  # fmt: skip
    plan = replace(plan, **changes)  # type: ignore[arg-type]
    Ledger(store.database).create_study(name, plan.problem.to_json(), plan.to_json())
    with Study.opened(store, name, plan) as study:
        for seed in range(n_trials):
            query = draw(context, seed)
            study.optimizer._propose = lambda *_, query=query: query  # type: ignore[attr-defined]
            trial = study.start(study.ask(Budget()))
            study.tell(trial.ended(evaluate(context, query)))
        yield study


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("choosing")


@pytest.fixture(scope="module")
def context(folder: Path) -> StudyContext:
    return context_of(folder)


@pytest.fixture(scope="module")
def study(context: StudyContext) -> Iterator[Study]:
    yield from studied(context, "choosing", N_TRIALS)


def best(study: Study):
    assert study.optimizer.history.incumbent is not None
    return study.optimizer.history.incumbent


def weights_of(chosen) -> dict[int, float]:
    return {trial.number: weight for trial, weight in chosen.members}


def lose(study: Study, folder: Path, number: int) -> Path:
    """Take a trial's predictions of the first fold away; where they lay."""
    trial = study.trials[number]
    assert trial.evaluation is not None
    lay = folder / "store/records" / predictions_record(trial.evaluation.predictions[0])
    lay.rename(folder / "gone")
    return lay


def test_the_best_trial_alone_is_an_ensemble_of_one(study) -> None:
    chosen = choose_ensemble(study, "single")
    assert chosen.to_json() == {
        "kind": "single", "members": [{"trial": best(study).number, "weight": 1.0}],
        "losses": [best(study).loss], "nested": {},
    }  # fmt: skip


def test_an_agnostic_ensemble_weighs_all_trials_by_how_often_they_are_best(study) -> None:
    chosen = choose_ensemble(study, "agnostic", 2)  # the size is of greedy selection
    weights = weights_of(chosen)
    assert chosen.kind == "agnostic"
    assert len(weights) > 2
    assert sum(weights.values()) == pytest.approx(1)
    assert list(weights.values()) == sorted(weights.values(), reverse=True)
    assert len(chosen.losses) == 1
    assert weights_of(choose_ensemble(study, "agnostic")) == weights
    losses = {t.number: t.loss for t in study.optimizer.history.complete}
    assert losses[next(iter(weights))] <= np.median(list(losses.values()))


def test_bootstraps_are_as_large_as_those_of_the_search(study, monkeypatch) -> None:
    monkeypatch.setattr(type(study.optimizer), "bootstraps", Bootstraps(1, 0.0))
    weights = weights_of(choose_ensemble(study, "agnostic"))
    tied = [t.number for t in study.optimizer.history.complete if t.loss == best(study).loss]
    assert weights == dict.fromkeys(tied, pytest.approx(1 / len(tied)))


def test_auto_says_what_it_expects_of_each_kind_and_builds_the_best(study, monkeypatch) -> None:
    monkeypatch.setattr(ensemble, "_LITTLE_SECONDS", 1e3)
    chosen = choose_ensemble(study, "auto")
    assert set(chosen.nested) == {"single", "greedy", "agnostic"}
    least = min(chosen.nested, key=chosen.nested.__getitem__)
    expected = choose_ensemble(study, least)
    assert chosen.to_json() == {**expected.to_json(), "nested": chosen.nested}


def test_what_auto_builds_is_fitted_in_a_few_times_what_the_best_takes(study, monkeypatch) -> None:
    def seconds_of(trial) -> float:
        return sum(cost.seconds for cost in trial.evaluation.steps) / 3

    assert len(choose_ensemble(study, "auto").members) > 1
    monkeypatch.setattr(ensemble, "_MOST_REFITS", 1.0)
    monkeypatch.setattr(ensemble, "_LITTLE_SECONDS", 0.0)
    chosen = choose_ensemble(study, "auto")
    assert sum(seconds_of(trial) for trial, _ in chosen.members) <= seconds_of(best(study)) + 1e-9


def test_where_no_kind_can_be_judged_the_best_trial_alone_is_taken(study, monkeypatch) -> None:
    monkeypatch.setattr(ensemble, "nested_losses", lambda *_, **__: {})
    chosen = choose_ensemble(study, "auto")
    assert (chosen.kind, weights_of(chosen)) == ("single", {best(study).number: 1.0})
    assert "too few rows are held out to compare kinds" in chosen.notes[0]


def test_trials_that_do_not_meet_the_constraints_are_no_members(context) -> None:
    for study in studied(context, "bounded", 6):
        losses = sorted(t.loss for t in study.optimizer.history.complete)
        allowed = [t.number for t in study.trials.values() if t.loss > losses[2]]
    bounds = (QuantityBound(Quantity("model_size_bytes"), 10.0),)
    store = store_of(context)
    stored = Ledger(store.database).study("bounded")
    plan = replace(StudyPlan.from_stored(stored), bounds=bounds)
    with Study.opened(store, "bounded", plan) as study:
        assert choose_ensemble(study, "agnostic") is None
        for number in study.trials:
            study.measure(number, {"model_size_bytes": 7.0 if number in allowed else 70.0})
        for kind in ("single", "greedy", "agnostic", "auto"):
            assert set(weights_of(choose_ensemble(study, kind))) <= set(allowed)


def test_trials_whose_predictions_are_gone_are_left_out_and_counted(study, folder) -> None:
    heaviest = next(iter(weights_of(choose_ensemble(study, "agnostic"))))
    lay = lose(study, folder, heaviest)
    try:
        chosen = choose_ensemble(study, "agnostic")
    finally:
        (folder / "gone").rename(lay)
    assert heaviest not in weights_of(chosen)
    assert chosen.notes == (
        "1 trial left out of the ensemble: held-out predictions are gone or damaged",
    )
    assert choose_ensemble(study, "agnostic").notes == ()


def test_a_best_trial_whose_predictions_are_gone_is_still_the_best_alone(study, folder) -> None:
    lay = lose(study, folder, best(study).number)
    try:
        chosen = choose_ensemble(study, "greedy", 1)
    finally:
        (folder / "gone").rename(lay)
    assert (chosen.kind, weights_of(chosen)) == ("single", {best(study).number: 1.0})


def test_few_held_out_rows_are_said(tmp_path) -> None:
    context = context_of(tmp_path, data=write_table(tmp_path, 36))
    for study in studied(context, "few", 4):
        for kind in ("agnostic", "auto"):
            (note,) = choose_ensemble(study, kind).notes
            assert note == (
                "28 rows held out: bootstraps of fewer than 30 say little about which trial is "
                "the best"
            )
        assert choose_ensemble(study, "greedy").notes == ()


def test_a_study_without_a_complete_trial_has_no_ensemble(context) -> None:
    for study in studied(context, "empty", 0):
        assert choose_ensemble(study, "auto") is None
