"""A study without test rows: its model is fitted on all rows, and no loss is made up."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies import EPOCHS, configured, context_of, epoch_context, store_of, to_epoch

from prefect_tune.optimizers import Query
from prefect_tune.storage.key import model_record
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import import_split, make_split
from prefect_tune.tasks.final_model import Member, keep_model, score
from prefect_tune.tasks.fitting.final_scoring import LossOnTest
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.trial.path_run import PathRun, StepOutcome


def without_test_rows(context: StudyContext) -> StudyContext:
    store = store_of(context)
    split = make_split(load_dataset(store, context.problem.dataset), 3, 0, 0)
    return replace(context, problem=replace(context.problem, split=import_split(split, store)))


def plainly(path_run: PathRun, position: int, _: StepOutcome | None) -> StepOutcome:
    return path_run.run(position)


def check_refit(context: StudyContext, *queries: Query) -> None:
    """The model of some members predicts all rows, again with what the cache has of it."""
    members = [Member(i, query.to_json(), 1 / len(queries)) for i, query in enumerate(queries)]
    store = store_of(context)
    rows = load_dataset(store, context.problem.dataset).rows(np.arange(50))
    predicted = []
    for _ in range(2):
        keep_model(context, members, plainly)
        assert score.fn("model", context).data.test == LossOnTest(None)  # type: ignore[union-attr]
        parts = store.records.get(model_record(context.study))
        predicted.append(parts["model"].predict(rows))
    assert len(set(predicted[0])) > 1
    np.testing.assert_array_equal(*predicted)


PREFIXES = (
    {"rescale": "standardize", "preprocess": ("pca", {"n_components": 0.5, "whiten": False})},
    {"rescale": "normalize", "preprocess": "none"},
)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("prefix", PREFIXES, ids=["pca", "none"])
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


@pytest.mark.parametrize("model", ["mlp", "sgd", "boosting", "histograms", "forest", "neighbours"])
def test_a_model_that_trains_in_epochs(tmp_path: Path, model) -> None:
    context = without_test_rows(epoch_context(tmp_path))
    query = configured(context, rescale="standardize", fit_model=model)
    check_refit(context, to_epoch(query, EPOCHS // 2))


def test_numbers(tmp_path: Path) -> None:
    context = without_test_rows(epoch_context(tmp_path, numbers=True))
    query = configured(context, rescale="standardize", fit_model="growing")
    check_refit(context, to_epoch(query, 2))
