"""Refits of members, the model made from them, and its loss on the test rows."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies import configured, context_of, store_of

from prefect_tune.storage.keys import model_record
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import REFIT, import_split, load_split, make_split
from prefect_tune.tasks.final.refit import (
    LossOnTest,
    Member,
    RefitFailed,
    fit_member,
    scored_on_test,
    store_model,
)
from prefect_tune.tasks.fitting import fitting
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow

TREE = {"criterion": "gini", "max_depth": 0.5, "min_samples_split": 2, "min_samples_leaf": 1}
NEIGHBORS = ("k_nearest", {"n_neighbors": 3, "weights": "uniform", "p": 2})
MODELS = (("decision_tree", TREE), NEIGHBORS, ("gaussian_nb", {}))


@pytest.fixture
def context(tmp_path: Path) -> StudyContext:
    return context_of(tmp_path)


@pytest.fixture
def members(context: StudyContext) -> list[Member]:
    """Return three models after the same first steps."""
    prefix = {"rescale": "standardize", "balance": "none", "preprocess": "none"}
    queries = [configured(context, **prefix, fit_model=model) for model in MODELS]
    weights = (0.5, 0.25, 0.25)
    return [
        Member(4 + i, q.to_json(), w) for i, (q, w) in enumerate(zip(queries, weights, strict=True))
    ]


def made_of(context: StudyContext, members: list[Member]) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the stored model's probabilities for the test rows, and its description."""
    store_model(context, members)
    store = store_of(context)
    parts = store.records.get(model_record(context.study))
    rows = load_split(store, context.problem.split).held_out(REFIT)
    dataset = load_dataset(store, context.problem.dataset)
    return parts["model"].predict_proba(dataset.rows(rows)), parts["about"]


def test_model_is_the_weighted_mean_of_the_members(context, members) -> None:
    found, about = made_of(context, members)
    each = []
    for member in members:
        alone = replace(context, study=f"alone {member.number}")
        each.append(made_of(alone, [replace(member, weight=1.0)])[0])
        assert scored_on_test(context, member) == scored_on_test(alone, None)
    np.testing.assert_allclose(found, 0.5 * each[0] + 0.25 * each[1] + 0.25 * each[2])
    assert [(m["trial"], m["weight"]) for m in about["members"]] == [(4, 0.5), (5, 0.25), (6, 0.25)]
    assert about["trial"] == 4


def test_step_results_of_members_are_cached_or_recomputed(context, members, monkeypatch) -> None:
    uncached, _ = made_of(replace(context, use_cache=False, study="uncached"), members)
    costs = [fit_member(context, member).costs() for member in members]
    assert [sum(not cost.hit for cost in of_member) for of_member in costs] == [4, 1, 1]
    with monkeypatch.context() as patched:
        patched.setattr(fitting, "build", None)
        np.testing.assert_array_equal(made_of(context, members)[0], uncached)
    assert store_of(context).prune(0) > 0
    np.testing.assert_array_equal(made_of(context, members)[0], uncached)


def test_model_ignores_test_rows(context, members) -> None:
    path_run = fit_member(context, members[0])
    for node in path_run.nodes(REFIT)[:-1]:
        assert node.part("held_out").shape[0] == 0
    assert len(path_run.nodes(REFIT)[-1].predictions().label) == 0


def test_error_names_incompatible_members(context, members, monkeypatch) -> None:
    def disagree(*_: Any) -> Any:
        raise ValueError("member 1 knows other classes")

    monkeypatch.setattr("prefect_tune.tasks.final.refit.ClassEnsemble.of_fitted", disagree)
    with pytest.raises(RefitFailed, match="trials 4, 5") as raised:
        store_model(context, members)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize("n_members", [1, 2])
def test_model_of_all_rows_predicts_the_same_from_the_cache(context, n_members) -> None:
    store = store_of(context)
    dataset = load_dataset(store, context.problem.dataset)
    split = import_split(make_split(dataset, 3, 0, 0), store)
    context = replace(context, problem=replace(context.problem, split=split))
    pca = ("pca", {"n_components": 0.5, "whiten": False})
    steps = {"rescale": "standardize", "preprocess": pca, "balance": "weighting"}
    queries = [configured(context, **steps, fit_model=m) for m in MODELS[1:][:n_members]]
    members = [Member(i, query.to_json(), 1 / n_members) for i, query in enumerate(queries)]
    predicted = []
    for _ in range(2):
        store_model(context, members)
        assert scored_on_test(context, None) == LossOnTest(None)
        model = store.records.get(model_record(context.study))["model"]
        predicted.append(model.predict(dataset.rows(np.arange(50))))
    assert len(set(predicted[0])) > 1
    np.testing.assert_array_equal(*predicted)
