"""Refits of members, the model that is made of them, and its loss on the test rows."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies import EPOCHS, configured, context_of, epoch_context, store_of, to_epoch

from prefect_tune.optimizers import Query
from prefect_tune.storage.index import pinned_keys
from prefect_tune.storage.keys import model_record
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, import_split, load_split, make_split
from prefect_tune.tasks.final.refit import (
    LossOnTest,
    Member,
    RefitFailed,
    fit_member,
    member_pins,
    scored_on_test,
    store_model,
)
from prefect_tune.tasks.fitting import fitting
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow

TREE = {"criterion": "gini", "max_depth": 0.5, "min_samples_split": 2, "min_samples_leaf": 1}
MODELS = (
    ("decision_tree", TREE),
    ("k_nearest", {"n_neighbors": 3, "weights": "uniform", "p": 2}),
    ("gaussian_nb", {}),
)


@pytest.fixture
def context(tmp_path: Path) -> StudyContext:
    return context_of(tmp_path)


@pytest.fixture
def members(context: StudyContext) -> list[Member]:
    """Three models behind one prefix."""
    prefix = {"rescale": "standardize", "balance": "none", "preprocess": "none"}
    queries = [configured(context, **prefix, fit_model=model) for model in MODELS]
    weights = (0.5, 0.25, 0.25)
    return [
        Member(4 + i, q.to_json(), w) for i, (q, w) in enumerate(zip(queries, weights, strict=True))
    ]


def kept(context: StudyContext) -> tuple[Any, dict[str, Any]]:
    parts = store_of(context).records.get(model_record(context.study))
    return parts["model"], parts["about"]


def pinned(context: StudyContext) -> set[str]:
    with store_of(context).database.read() as connection:
        return set(connection.execute(pinned_keys()).scalars())


def predictions(model: Any, context: StudyContext) -> np.ndarray:
    store = store_of(context)
    dataset = load_dataset(store, context.problem.dataset)
    rows = load_split(store, context.problem.split).held_out(REFIT)
    found: np.ndarray = model.predict_proba(dataset.rows(rows))
    return found


def lost(context: StudyContext, alone: Member | None = None) -> float:
    """The loss of the stored model on the test rows, or of a trial alone."""
    found = scored_on_test(context, alone)
    assert found.loss is not None
    return found.loss


def test_the_model_is_the_weighted_mean_of_its_members(context, members) -> None:
    store_model(context, members)
    model, about = kept(context)
    each = []
    for member in members:
        alone = replace(context, study=f"alone {member.number}")
        store_model(alone, [replace(member, weight=1.0)])
        each.append(predictions(kept(alone)[0], context))
        assert lost(context, member) == lost(alone)
    expected = 0.5 * each[0] + 0.25 * each[1] + 0.25 * each[2]
    np.testing.assert_allclose(predictions(model, context), expected)
    assert [(m["trial"], m["weight"]) for m in about["members"]] == [(4, 0.5), (5, 0.25), (6, 0.25)]
    assert about["trial"] == 4


def test_what_members_were_made_of_is_served_when_the_model_is_put_together(
    context, members, monkeypatch
) -> None:
    made = [fit_member(context, member).costs() for member in members]
    assert [sum(not cost.hit for cost in costs) for costs in made] == [4, 1, 1]
    uncached = replace(context, use_cache=False, study="uncached")
    store_model(uncached, members)
    monkeypatch.setattr(fitting, "build", None)
    store_model(context, members)
    np.testing.assert_array_equal(
        predictions(kept(context)[0], context), predictions(kept(uncached)[0], context)
    )


def test_what_was_evicted_in_between_is_made_again(context, members) -> None:
    uncached = replace(context, use_cache=False, study="uncached")
    store_model(uncached, members)
    for member in members:
        fit_member(context, member)
    store = store_of(context)
    assert store.prune(0) > 0
    store_model(context, members)
    assert lost(context) == lost(uncached)


def test_test_rows_have_no_part_in_the_model(context, members) -> None:
    path_run = fit_member(context, members[0])
    for node in path_run.nodes(REFIT)[:-1]:
        assert node.part("held_out").shape[0] == 0
    assert len(path_run.nodes(REFIT)[-1].predictions().label) == 0


def test_what_a_member_is_made_of_stays_pinned_for_its_owner(context, members) -> None:
    path_run = fit_member(context, members[0], "one")
    fit_member(context, members[1], "two")
    keys = {node.key for node in path_run.nodes(REFIT)}
    assert keys < pinned(context)
    store_of(context).index.pins.release("two")
    assert pinned(context) == keys
    fit_member(context, members[2])
    assert pinned(context) == keys


def test_a_member_that_cannot_be_fitted_is_named_by_its_trial(
    context, members, monkeypatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ValueError("not this one\nat all")

    monkeypatch.setattr("prefect_tune.tasks.trial.node.fit_model", broken)
    with pytest.raises(RefitFailed, match=r"trial 5.*not this") as raised:
        fit_member(context, members[1])
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_a_store_that_is_lost_is_no_members_fault(context, members, monkeypatch) -> None:
    def lost(*_: Any, **__: Any) -> Any:
        raise StoreLost("the disk is full")

    monkeypatch.setattr("prefect_tune.tasks.trial.node.fit_model", lost)
    with pytest.raises(StoreLost, match="disk is full"):
        fit_member(context, members[1])


def test_members_that_disagree_on_classes_are_named_by_their_trials(
    context, members, monkeypatch
) -> None:
    def disagreeing(*_: Any) -> Any:
        raise ValueError("member 1 knows the classes no, yes and perhaps")

    monkeypatch.setattr("prefect_tune.tasks.final.refit.ClassEnsemble.of_fitted", disagreeing)
    with pytest.raises(RefitFailed, match="trials 4, 5"):
        store_model(context, members)


def test_pins_of_all_members_are_released_at_once_and_other_pins_stay(context, members) -> None:
    for number, member in enumerate(members):
        fit_member(context, member, member_pins("mine", number))
    other = fit_member(context, members[0], member_pins("yours", 0))
    store_of(context).index.pins.release_beginning(member_pins("mine"))
    assert pinned(context) == {node.key for node in other.nodes(REFIT)}


def without_test_rows(context: StudyContext) -> StudyContext:
    store = store_of(context)
    split = make_split(load_dataset(store, context.problem.dataset), 3, 0, 0)
    return replace(context, problem=replace(context.problem, split=import_split(split, store)))


def check_refit(context: StudyContext, *queries: Query) -> None:
    """The model of some members predicts all rows, again with what the cache has of it."""
    members = [Member(i, query.to_json(), 1 / len(queries)) for i, query in enumerate(queries)]
    store = store_of(context)
    rows = load_dataset(store, context.problem.dataset).rows(np.arange(50))
    predicted = []
    for _ in range(2):
        store_model(context, members)
        assert scored_on_test(context, None) == LossOnTest(None)
        parts = store.records.get(model_record(context.study))
        predicted.append(parts["model"].predict(rows))
    assert len(set(predicted[0])) > 1
    np.testing.assert_array_equal(*predicted)


PREFIXES = (
    {"rescale": "standardize", "preprocess": ("pca", {"n_components": 0.5, "whiten": False})},
    {"rescale": "normalize", "preprocess": "none"},
)


@pytest.mark.parametrize(
    ("prefix", "use_cache"),
    [*((p, True) for p in PREFIXES), pytest.param(PREFIXES[0], False, marks=pytest.mark.full)],
)
def test_a_pipeline_of_a_table_and_an_ensemble(tmp_path: Path, prefix, use_cache) -> None:
    context = without_test_rows(replace(context_of(tmp_path), use_cache=use_cache))
    models = [("gaussian_nb", {}), ("k_nearest", {"n_neighbors": 3, "weights": "uniform", "p": 2})]
    queries = [configured(context, **prefix, balance="weighting", fit_model=m) for m in models]
    check_refit(context, queries[0])
    check_refit(replace(context, study="both"), *queries)


def test_a_pipeline_of_events(tmp_path: Path) -> None:
    context = without_test_rows(context_of(tmp_path, events=True))
    query = configured(
        context,
        construct_features=("aggregate", {"aggregation": "count", "min_frequency": 2}),
        densify="keep_sparse",
        rescale="none",
        balance="none",
        preprocess="none",
        fit_model=("k_nearest", {"n_neighbors": 3, "weights": "uniform", "p": 2}),
    )
    check_refit(context, query)


@pytest.mark.parametrize(
    "model",
    [
        "sgd",
        *(
            pytest.param(m, marks=pytest.mark.full)
            for m in ("mlp", "boosting", "histograms", "forest")
        ),
        "neighbours",
    ],
)
def test_a_model_that_trains_in_epochs(tmp_path: Path, model) -> None:
    context = without_test_rows(epoch_context(tmp_path))
    query = configured(context, rescale="standardize", fit_model=model)
    check_refit(context, to_epoch(query, EPOCHS // 2))


def test_a_regression_model_that_trains_in_epochs(tmp_path: Path) -> None:
    context = without_test_rows(epoch_context(tmp_path, numbers=True))
    query = configured(context, rescale="standardize", fit_model="growing")
    check_refit(context, to_epoch(query, EPOCHS // 2))
