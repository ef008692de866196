"""Queries of subsets of the rows, from their rows to what fails on few of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies import configured, context_of, evaluate, outcome, store_of

from prefect_tune.optimizers import Evaluation, Failure, Query
from prefect_tune.storage.key import predictions_record
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import load_split
from prefect_tune.tasks.problem import StudyContext, algorithm_ids
from prefect_tune.tasks.user_space import load_user_space

FOREST = (
    "extra_trees",
    {
        "bootstrap": False, "criterion": "gini", "max_features": 1.0, "min_samples_leaf": 1,
        "min_samples_split": 2,
    },
)  # fmt: skip
BAYES = "gaussian_nb"
NEEDS_ROWS = """
from prefect_tune import Algorithm, Space, Step
from prefect_tune.tasks.catalogue.preparation import ENCODE, IMPUTE

FEW = "sklearn.neighbors.KNeighborsClassifier"
PARTS = "sklearn.decomposition.PCA"
FIVE = {"n_components": 5, "random_state": 0}
reduce = Step(
    "reduce", (Algorithm(id="none"), Algorithm(id="parts", estimator=PARTS, fixed=FIVE))
)
models = Step(
    "fit model",
    (
        Algorithm(id="bayes", estimator="sklearn.naive_bayes.GaussianNB"),
        Algorithm(id="neighbours", estimator=FEW, fixed={"n_neighbors": 30}),
    ),
)
space = Space("needs rows", (IMPUTE, ENCODE, reduce, models))
"""


def query_of(context: StudyContext, model: object, subset: float = 1.0, draw: int = 0) -> Query:
    whole = configured(
        context, rescale="standardize", balance="none", preprocess="none", fit_model=model
    )
    return replace(whole, subset=subset, subset_draw=draw)


def keys(evaluation: Evaluation) -> set[str]:
    return {step.key for step in evaluation.steps}


def test_each_draw_has_prefixes_of_its_own_and_trials_of_one_draw_share_them(tmp_path) -> None:
    context = context_of(tmp_path)
    first = evaluate(context, query_of(context, BAYES, 0.5))
    other = evaluate(context, query_of(context, BAYES, 0.5, draw=1))
    assert not keys(first) & keys(other)
    assert not any(step.hit for step in other.steps)
    shared = evaluate(context, query_of(context, FOREST, 0.5, draw=1))
    assert {s.key for s in shared.steps if s.hit} == {
        s.key for s in other.steps if s.step != "fit model"
    }
    assert len({first.fold_losses, other.fold_losses}) == 2


def test_of_all_rows_there_is_one_family(tmp_path) -> None:
    context = context_of(tmp_path)
    first = evaluate(context, query_of(context, FOREST))
    again = evaluate(context, query_of(context, FOREST, draw=3))
    assert keys(first) == keys(again)
    assert all(step.hit for step in again.steps)


def test_a_model_of_a_subset_is_held_against_all_held_out_rows(tmp_path) -> None:
    context = context_of(tmp_path)
    store = store_of(context)
    dataset = load_dataset(store, context.problem.dataset)
    split = load_split(store, context.problem.split)
    for draw in (0, 1):
        evaluation = evaluate(context, query_of(context, BAYES, 1 / 8, draw))
        for fold, key in enumerate(evaluation.predictions):
            labels = store.records.get(predictions_record(key))["label"]
            rows = split.held_out(fold)
            assert len(labels) == len(rows)
            missed = 100 * np.mean(labels != dataset.y[rows])
            assert evaluation.fold_losses[fold] == pytest.approx(missed)


def test_the_same_subset_in_another_store_gives_the_same_loss(tmp_path: Path) -> None:
    losses = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        context = context_of(tmp_path / name)
        losses.append(evaluate(context, query_of(context, FOREST, 0.25, draw=2)).fold_losses)
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ({"reduce": "none", "fit_model": "neighbours"}, "fit model"),
        ({"reduce": "parts", "fit_model": "bayes"}, "reduce"),
    ],
)
def test_what_needs_more_rows_fails_in_its_step_and_not_on_all_of_them(
    tmp_path, path: dict[str, str], step: str
) -> None:
    context = context_of(tmp_path)
    space = load_user_space(NEEDS_ROWS, "space.py:space")
    problem = replace(
        context.problem,
        space="space.py:space",
        space_digest=space.digest,
        space_code=NEEDS_ROWS,
        algorithms=algorithm_ids(space),
    )
    context = replace(context, problem=problem)
    whole = configured(context, **path)
    failed = outcome(context, replace(whole, subset=1 / 64))
    assert isinstance(failed, Failure)
    assert (failed.kind, failed.step, failed.fold) == ("error", step, 0)
    assert failed.cost_seconds > 0
    evaluate(context, whole)
