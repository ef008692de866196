"""Trials that are not the whole evaluation, wherever a study is looked at or used."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from contracts.store import entry, present, put
from flow_studies import enter, entered, pinned
from flow_studies import tell as tell_came
from studies import context_of, draw, evaluate, store_of
from worlds import evaluation

from prefect_tune.flows.comparison.curves import curve_of
from prefect_tune.flows.ending.ensemble import choose_ensemble
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study import retention as stretch_pins
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Optimizer, Query, StepCost, Trial
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow

NAME = "stretches"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> StudyContext:
    return replace(context_of(tmp_path_factory.mktemp("stretches")), study=NAME)


@pytest.fixture(scope="module")
def study(context: StudyContext) -> Iterator[Study]:
    """Three configurations begun on some folds or half the rows; two of them went on to the end."""
    with entered(context, NAME) as study:
        first, second, third = (draw(context, seed) for seed in (1, 7, 4))
        for query in (
            replace(first, folds=1), replace(second, folds=2), replace(third, subset=0.5),
            first, second,
        ):  # fmt: skip
            tell(study, query, context)
        yield study


def _preferred(optimizer: Optimizer) -> Trial | None:
    return optimizer.history.get(getattr(optimizer, "preferred", 0))


def tell(study: Study, query: Query, context: StudyContext) -> None:
    """Ask for that query and tell what comes of it."""
    tell_came(study, evaluate(context, query), query)


def curve(study: Study, name: str = NAME) -> pd.DataFrame:
    return curve_of(study.store, name, comparison="c", method="m", repeat=0)


def test_stopped_trials_count_apart_and_are_in_no_curve_or_ensemble(study) -> None:
    view = read_study(study.store, NAME)
    assert (view.n_trials, view.n_stopped, view.n_begun) == (5, 3, 3)
    assert view.incumbent.trial in {3, 4}
    assert view.incumbent.fidelity == ""
    chosen = choose_ensemble(study, study.incumbent, "greedy", 4)
    assert chosen is not None
    assert [trial.number for trial, _ in chosen.members] == [3, 4]
    assert chosen.losses[-1] < chosen.losses[0] == min(study.optimizer.history.losses)
    found = curve(study)
    assert found["trials"].tolist() == [0, 1, 2, 3, 3, 3]
    assert found["loss"].isna().tolist() == [True] * 4 + [False] * 2
    assert found["incumbent"].isna().tolist() == [True] + [False] * 5  # partial ones at first
    assert found["incumbent_loss"].isna().tolist() == [True] * 4 + [False] * 2
    assert (found["cost_seconds"][1:] > 0).all()


def test_a_curve_has_the_choice_of_the_method_at_its_time_and_full_losses_only(context) -> None:
    options = {"method": "halving", "option": {"fidelity": "folds"}}
    with entered(context, "only stopped", **options) as study:
        for seed in (1, 7):
            tell(study, replace(draw(context, seed), folds=1), context)
        assert read_study(study.store, "only stopped").incumbent.fidelity == "folds 1 of 3"
    found = curve(study, "only stopped")
    told = [e.body for e in study.ledger.each_event("only stopped") if e.kind == "tell"]
    assert found["incumbent"].tolist()[1:] == [body["incumbent"] for body in told]
    assert found["incumbent"].notna().tolist() == [False, True, True]
    assert found["incumbent_loss"].isna().all()  # what one fold says is not to be compared


def test_a_stopped_trial_that_is_preferred_to_full_ones_is_the_answer_everywhere(
    context, monkeypatch
) -> None:
    name = "predicted"
    enter(context, name)
    with Study.opened(store_of(context), name) as study:
        monkeypatch.setattr(type(study.optimizer), "incumbent", property(_preferred))
        first, second = draw(context, 1), draw(context, 7)
        with study.timed(), study.searching():
            tell(study, replace(first, subset=0.5), context)
            tell(study, second, context)
            assert pinned(study.store) >= {s.key for s in study.trials[0].evaluation.steps}
            study.optimizer.preferred = 1
            study.ask(Budget())  # what an ask has learned may change the choice
            assert read_study(study.store, name).incumbent.trial == 0
        view = read_study(study.store, name)
        assert (view.incumbent.trial, view.incumbent.fidelity) == (1, "")
    found = curve(study, name)
    assert found["incumbent"].tolist()[1:] == [0, 0]
    assert found["incumbent_loss"].isna().all()


@pytest.fixture
def pinned_context(tmp_path: Path) -> StudyContext:
    return replace(context_of(tmp_path), study="kept")


@pytest.fixture
def halving(pinned_context: StudyContext) -> Iterator[Study]:
    """One of successive halving over folds."""
    options = {"method": "halving", "option": {"fidelity": "folds"}}
    with entered(pinned_context, "kept", **options) as study:
        yield study


def tell_model(study: Study, query: Query, model: str, loss: float = 1.0) -> None:
    """Tell a trial of that query, whose model is the artifact of a name."""
    steps = tuple(
        StepCost(name, 0, 1.0, 0.0, False, entry(key).key)
        for name, key in ((study.optimizer.space.steps[-1].name, model), ("before", "x" + model))
    )
    tell_came(study, replace(evaluation(loss), steps=steps), query)


def test_resumable_checkpoints_survive_pressure_until_the_session_ends(
    halving, pinned_context
) -> None:
    size = put(halving.store, "a", seconds=0.5).size_bytes
    part, other = (replace(draw(pinned_context, seed), folds=1) for seed in (1, 7))
    with halving.timed(), halving.searching():
        tell_model(halving, other, "z", loss=0.5)  # the choice, which is kept anyway
        tell_model(halving, part, "a", loss=2.0)
        halving.store.set_budget(halving.store.index.totals().size_bytes + size)
        for name in "bcd":
            put(halving.store, name, seconds=100.0)
        assert "a" in present(halving.store)
    put(halving.store, "e", seconds=100.0)
    assert "a" not in present(halving.store)


def test_of_each_configuration_the_newest_stretch_is_kept_until_it_is_complete(
    halving, pinned_context
) -> None:
    first, second, other = (draw(pinned_context, seed) for seed in (1, 7, 4))
    a, b, c, d = (entry(name).key for name in "abcd")
    with halving.timed(), halving.searching():
        tell_model(halving, replace(other, folds=1), "d", loss=0.1)
        tell_model(halving, replace(first, folds=1), "a")
        tell_model(halving, replace(second, folds=1), "b")
        assert {a, b, d} <= pinned(halving.store)
        tell_model(halving, replace(first, folds=2), "c")
        assert pinned(halving.store) >= {b, c, d}
        assert a not in pinned(halving.store)
        tell_model(halving, second, "e", loss=3.0)
        tell_model(halving, other, "f", loss=0.2)
        assert pinned(halving.store) & {b, c, d} == {c}
    assert not pinned(halving.store)
    with halving.timed(), halving.searching():
        assert pinned(halving.store) & {a, b, c, d} == {c}


def test_of_many_configurations_the_newest_are_kept_and_none_of_subsets(
    halving, pinned_context, monkeypatch
) -> None:
    """Nothing resumes from a model of a subset."""
    monkeypatch.setattr(stretch_pins, "_MOST_CONFIGURATIONS", 2)
    queries = [replace(draw(pinned_context, seed), folds=1) for seed in (1, 7, 4, 9)]
    part = replace(draw(pinned_context, 3), subset=0.25, folds=1)
    with halving.timed(), halving.searching():
        tell_model(halving, queries[0], "a", 4.0)
        tell_model(halving, part, "e", 5.0)
        assert entry("e").key not in pinned(halving.store)
        for query, name, loss in zip(queries[1:], "bcd", (3.0, 2.0, 1.0), strict=True):
            tell_model(halving, query, name, loss)
        kept = {name for name in "abcd" if entry(name).key in pinned(halving.store)}
    assert kept == {"c", "d"}
