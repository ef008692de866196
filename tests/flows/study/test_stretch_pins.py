"""A session keeps the models from which its configurations may go on."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from contracts.store import entry, present, put
from studies import context_of, draw, store_of
from worlds import evaluation

from prefect_tune.flows.study import retention as stretch_pins
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers import Budget, Query, StepCost
from prefect_tune.storage import Ledger
from prefect_tune.storage.cache.index import pinned_keys
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.problem import StudyContext

NAME = "kept"


@pytest.fixture
def context(tmp_path: Path) -> StudyContext:
    return replace(context_of(tmp_path), study=NAME)


@pytest.fixture
def study(context: StudyContext) -> Iterator[Study]:
    """One of successive halving over folds."""
    plan = StudyPlan(
        source=Source("table.csv", target="target"), data_name="table", problem=context.problem,
        folds=3, holdout=None, test_size=0.2, positive=None, chance_loss=40.0, method="halving",
        options={"fidelity": "folds"},
    )  # fmt: skip
    store = store_of(context)
    Ledger(store.database).create_study(NAME, plan.problem.to_json(), plan.to_json())
    with Study.opened(store, NAME, plan) as study:
        yield study


def tell(study: Study, query: Query, model: str, loss: float = 1.0) -> None:
    """Tell a trial of that query, whose model is the artifact of a name."""
    study.optimizer._propose = lambda *_: query  # type: ignore[method-assign]
    steps = tuple(
        StepCost(name, 0, 1.0, 0.0, False, entry(key).key)
        for name, key in ((study.optimizer.space.steps[-1].name, model), ("before", "x" + model))
    )
    trial = study.start(study.ask(Budget()))
    study.tell(trial.ended(replace(evaluation(loss), steps=steps)))


def pinned(study: Study) -> set[str]:
    with study.store.database.read() as connection:
        return set(connection.execute(pinned_keys()).scalars())


def test_what_may_be_gone_on_from_survives_pressure_until_the_session_ends(study, context) -> None:
    size = put(study.store, "a", seconds=0.5).size_bytes
    part, other = (replace(draw(context, seed), folds=1) for seed in (1, 7))
    with study.session():
        tell(study, other, "z", loss=0.5)  # the choice, which is kept anyway
        tell(study, part, "a", loss=2.0)
        study.store.set_budget(study.store.index.totals().cache_bytes + size)
        for name in "bcd":
            put(study.store, name, seconds=100.0)
        assert "a" in present(study.store)
    put(study.store, "e", seconds=100.0)
    assert "a" not in present(study.store)


def test_of_each_configuration_the_newest_stretch_is_kept_until_it_is_complete(
    study, context
) -> None:
    first, second, other = (draw(context, seed) for seed in (1, 7, 4))
    a, b, c, d = (entry(name).key for name in "abcd")
    with study.session():
        tell(study, replace(other, folds=1), "d", loss=0.1)
        tell(study, replace(first, folds=1), "a")
        tell(study, replace(second, folds=1), "b")
        assert {a, b, d} <= pinned(study)
        tell(study, replace(first, folds=2), "c")
        assert pinned(study) >= {b, c, d}
        assert a not in pinned(study)
        tell(study, second, "e", loss=3.0)
        tell(study, other, "f", loss=0.2)
        assert pinned(study) & {b, c, d} == {c}
    assert not pinned(study)
    with study.session():
        assert pinned(study) & {a, b, c, d} == {c}


def test_of_many_configurations_the_newest_are_kept(study, context, monkeypatch) -> None:
    monkeypatch.setattr(stretch_pins, "_MOST_CONFIGURATIONS", 2)
    queries = [replace(draw(context, seed), folds=1) for seed in (1, 7, 4, 9)]
    with study.session():
        for query, name, loss in zip(queries, "abcd", (4.0, 3.0, 2.0, 1.0), strict=True):
            tell(study, query, name, loss)
        kept = {name for name in "abcd" if entry(name).key in pinned(study)}
    assert kept == {"c", "d"}


def test_models_of_subsets_are_not_kept_for_nothing_goes_on_from_them(study, context) -> None:
    first, second, other = (draw(context, seed) for seed in (1, 7, 4))
    with study.session():
        tell(study, replace(other, folds=1), "d", loss=0.1)  # the choice, which is kept anyway
        tell(study, replace(first, subset=0.25, folds=1), "a", loss=1.0)
        tell(study, replace(second, subset=0.25, epochs=3, folds=1), "b", loss=2.0)
        kept = {name for name in "abd" if entry(name).key in pinned(study)}
    assert kept == {"b", "d"}
