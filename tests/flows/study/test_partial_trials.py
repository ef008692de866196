"""Partial trials, in every view and use of a study."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from contracts.store import entry, present, put
from flow_studies import entered, pinned, tell
from studies import context_of, draw
from worlds import evaluation

from prefect_tune.flows.comparison.curves import curve_of
from prefect_tune.flows.reading.study_view import read_study
from prefect_tune.flows.study import retention as stretch_pins
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Query, StepCost
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow


@pytest.fixture
def context(tmp_path: Path) -> StudyContext:
    return replace(context_of(tmp_path), study="s")


@pytest.fixture
def halving(context: StudyContext) -> Iterator[Study]:
    """A study with successive halving over folds."""
    options = {"method": "halving", "option": {"fidelity": "folds"}}
    with entered(context, "s", **options) as study:
        yield study


def test_partial_trials_are_counted_separately_and_are_in_no_curve(context) -> None:
    first, second, third = (draw(context, seed) for seed in (1, 7, 4))
    begun = (replace(first, folds=1), replace(second, folds=2), replace(third, subset=0.5))
    with entered(context, "s") as study:
        for query, loss in zip((*begun, first, second), (1.0, 2.0, 3.0, 9.0, 8.0), strict=True):
            tell(study, evaluation(loss), query)
        view = read_study(study.store, "s")
    assert (view.n_complete, view.n_partial, view.n_begun) == (5, 3, 3)
    assert (view.incumbent.trial, view.incumbent.fidelity) == (4, "")
    found = curve_of(study.store, "s", comparison="c", method="m", repeat=0)
    assert found["trials"].tolist() == [0, 1, 2, 3, 3, 3]
    assert found["loss"].isna().tolist() == [True] * 4 + [False] * 2
    assert found["incumbent"].isna().tolist() == [True] + [False] * 5  # partial ones at first
    assert found["incumbent_loss"].isna().tolist() == [True] * 4 + [False] * 2
    assert (found["cost_seconds"][1:] > 0).all()


def test_curve_follows_the_incumbent_of_the_method_and_has_only_full_losses(
    halving, context
) -> None:
    for seed, loss in ((1, 2.0), (7, 1.0)):
        tell(halving, evaluation(loss), replace(draw(context, seed), folds=1))
    assert read_study(halving.store, "s").incumbent.fidelity == "folds 1 of 3"
    found = curve_of(halving.store, "s", comparison="c", method="m", repeat=0)
    assert found["incumbent"].tolist()[1:] == [0, 1]
    assert found["incumbent_loss"].isna().all()  # what one fold says is not to be compared


def test_stopped_trial_preferred_by_the_method_is_the_incumbent_everywhere(
    context, monkeypatch
) -> None:
    preferred = [0]
    step = StepCost("fit model", 0, 1.0, 0.0, hit=False, key="a" * 64)
    with entered(context, "s") as study:
        by_method = property(lambda optimizer: optimizer.history.get(preferred[0]))
        monkeypatch.setattr(type(study.optimizer), "incumbent", by_method)
        with study.clock.running(), study.searching():
            part = replace(draw(context, 1), subset=0.5)
            tell(study, replace(evaluation(2.0), steps=(step,)), part)
            tell(study, evaluation(1.0), draw(context, 7))
            assert step.key in pinned(study.store)
            preferred[0] = 1
            study.ask(Budget())  # what an ask has learned may change the choice
            assert read_study(study.store, "s").incumbent.trial == 0
        view = read_study(study.store, "s")
    assert (view.incumbent.trial, view.incumbent.fidelity) == (1, "")


def tell_model(study: Study, query: Query, model: str, loss: float = 1.0) -> None:
    """Tell a trial of `query`; the trial's model is the artifact named `model`."""
    steps = tuple(
        StepCost(name, 0, 1.0, 0.0, False, entry(key).key)
        for name, key in ((study.optimizer.space.steps[-1].name, model), ("before", "x" + model))
    )
    tell(study, replace(evaluation(loss), steps=steps), query)


def test_resumable_checkpoints_survive_eviction_until_the_session_ends(halving, context) -> None:
    size = put(halving.store, "a", seconds=0.5).size_bytes
    part, other = (replace(draw(context, seed), folds=1) for seed in (1, 7))
    with halving.clock.running(), halving.searching():
        tell_model(halving, other, "z", loss=0.5)  # the choice, which is kept anyway
        tell_model(halving, part, "a", loss=2.0)
        halving.store.set_budget(halving.store.index.totals().size_bytes + size)
        for name in "bcd":
            put(halving.store, name, seconds=100.0)
        assert "a" in present(halving.store)
    put(halving.store, "e", seconds=100.0)
    assert "a" not in present(halving.store)


def test_newest_checkpoint_is_kept_until_the_configuration_is_complete(halving, context) -> None:
    first, second, other = (draw(context, seed) for seed in (1, 7, 4))
    a, b, c, d = (entry(name).key for name in "abcd")
    with halving.clock.running(), halving.searching():
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
    with halving.clock.running(), halving.searching():
        assert pinned(halving.store) & {a, b, c, d} == {c}


def test_newest_checkpoints_are_kept_except_models_trained_on_subsets(
    halving, context, monkeypatch
) -> None:
    """No training run resumes from a model that was trained on a subset."""
    monkeypatch.setattr(stretch_pins, "_MOST_CONFIGURATIONS", 2)
    parts = [{}, {"subset": 0.25}, {}, {}, {}]
    with halving.clock.running(), halving.searching():
        for name, seed, part in zip("aebcd", (1, 3, 7, 4, 9), parts, strict=True):
            query = replace(draw(context, seed), folds=1, **part)
            tell_model(halving, query, name, loss=9.0 - seed / 9)
        kept = {name for name in "abcde" if entry(name).key in pinned(halving.store)}
    assert kept == {"c", "d"}
