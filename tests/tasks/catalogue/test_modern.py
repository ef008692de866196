"""The modern spaces on a messy table, and features constructed from tables and events."""

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import event_rows, write_meds, written
from studies import evaluate, problem_of, store_of

from prefect_tune.optimizers import Query, Space
from prefect_tune.optimizers.space.configuration import default_choice, default_configuration
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.storage.keys import model_record
from prefect_tune.tasks.catalogue.combinations import ArithmeticCombinations, CategoryInteractions
from prefect_tune.tasks.catalogue.construction import BoundCategories, EventAggregation
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.schema import like_training
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.final.refit import Member, store_model
from prefect_tune.tasks.fitting.epochs import iterative_algorithms
from prefect_tune.tasks.fitting.fitting import FoldData, fit_transformer
from prefect_tune.tasks.fitting.recipe import MatrixSummary, recipe
from prefect_tune.tasks.problem import StudyContext, open_store

N = 120
TABLES = {"modern": "logistic_regression", "modern_regression": "ridge"}
"""Spaces for tables, and a plain model of each."""
OF_EVENTS = ("modern_healthcare", "events")


def rough_table(target: str) -> pd.DataFrame:
    """Return a table with missing values, constants, odd names, and few or many categories."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    color = rng.choice(["red", "green", "blue"], N, p=[0.5, 0.45, 0.05])
    frame = pd.DataFrame({'a "quoted" {name}': x[:, 0], "b[1]": x[:, 1], "same": 1.0})
    frame["color"] = color
    frame["town"] = [f"town {i % 40}" for i in range(N)]
    frame["two words"] = rng.choice(["yes", "no"], N)
    score = x[:, 0] * x[:, 1] + 0.5 * (color == "red") + 0.1 * rng.normal(size=N)
    frame.loc[rng.choice(N, 20, replace=False), "b[1]"] = np.nan
    frame.loc[rng.choice(N, 20, replace=False), "color"] = None
    classes = np.array(["high", "low", "mid"])[np.digitize(score, [0.0, 0.6])]
    return frame.assign(target=classes if target == "classification" else 10 * score)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory) -> dict[str, StudyContext]:
    """Return a study of each modern space."""
    folder = tmp_path_factory.mktemp("modern")
    store = StoreAddress(str(folder / "store"))
    found = {}
    for name in (*TABLES, *OF_EVENTS):
        space, metric = SPACES[name], "error" if SPACES[name].target == "classification" else "r2"
        if name in OF_EVENTS:
            meds = folder / "meds"
            source = Source(str(meds if meds.exists() else write_meds(meds)), labels="labels/task")
        else:
            table = written(rough_table(space.target), folder / f"{name}.parquet")
            source = Source(table, target="target", categorical=("town",))
        problem = problem_of(source, open_store(store), space, metric=metric)
        found[name] = StudyContext(name, problem, store, use_cache=True)
    return found


def with_algorithms(space: Space, **chosen: str) -> Query:
    """Return defaults of the simplest path with these algorithms, as in `fit_model="lightgbm"`."""
    path = tuple(chosen.get(s.name.replace(" ", "_"), s.simplest.id) for s in space.searched)
    return Query(default_configuration(space, space.canonical_path(path)))


USUAL = (
    ("modern", {"fit_model": "lightgbm"}),
    ("modern", {"construct": "interactions", "fit_model": "logistic_regression"}),
    ("events", {"construct_features": "windows", "fit_model": "random_forest"}),
    ("events", {"construct_features": "aggregate", "fit_model": "random_forest"}),
)


def paths() -> Iterator[Any]:
    """Return paths with every model, and paths with every choice before a plain model of tables."""
    yield from USUAL
    for name in (*TABLES, *OF_EVENTS):
        *before, last = SPACES[name].steps
        dense = {"densify": "to_dense"} if name in OF_EVENTS else {}
        for model in last.algorithms:
            yield pytest.param(name, {**dense, "fit_model": model.id}, marks=pytest.mark.full)
        for step in before if name in TABLES else ():
            for algorithm in step.algorithms:
                if not algorithm.only_ignored:
                    path = {step.name: algorithm.id, "fit_model": TABLES[name]}
                    yield pytest.param(name, path, marks=pytest.mark.full)


def check_final_model(context: StudyContext, query: Query) -> None:
    """Check that a model can be pickled, and predicts rows with unseen and missing values."""
    store = store_of(context)
    store_model(context, [Member(0, query.to_json())])
    model = store.records.get(model_record(context.study))["model"]
    dataset = load_dataset(store, context.problem.dataset)
    rows = dataset.X
    if dataset.row_reader is not None:
        new = rough_table("classification").drop(columns="target").iloc[:9].copy()
        new.loc[new.index[0], "color"] = "violet"
        new["town"] = "elsewhere"
        new.loc[new.index[1], ["same", 'a "quoted" {name}']] = np.nan
        rows = like_training(new, dataset.row_reader)
    predicted = pickle.loads(pickle.dumps(model)).predict(rows)
    assert len(predicted) == len(rows)
    if dataset.classes:
        assert set(predicted) <= set(dataset.classes)
    else:
        assert np.isfinite(predicted).all()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "path"), list(paths()))
def test_every_path_is_fitted_stored_and_predicts_unseen_values(contexts, name, path) -> None:
    query = with_algorithms(SPACES[name], **path)
    if SPACES[name].is_feasible(query.configuration.path):
        assert np.isfinite(evaluate(contexts[name], query).loss)
        check_final_model(contexts[name], query)


def test_target_encoding_of_a_row_ignores_the_target_of_the_row() -> None:
    """A unique category per row would otherwise reveal the target."""
    algorithm = SPACES["modern"].step("encode").algorithm("target")
    names = pd.DataFrame({"name": pd.Categorical([f"row {i}" for i in range(60)])})
    y = np.array(["a", "b"])[np.arange(60) % 2]
    how = recipe(algorithm, default_choice(algorithm), MatrixSummary.of(names), balanced=False)
    made = fit_transformer(how, 0, FoldData(names, names, y, np.array(["a", "b"])))
    train, held_out = made.parts["train"][:, 0], made.parts["held_out"][:, 0]
    assert abs(np.corrcoef(held_out, y == "b")[0, 1]) > 0.9
    assert np.ptp(train) < 0.01 < np.ptp(held_out)
    assert how.to_json(0)["out_of_fold"]


def test_categories_interact_even_in_rows_with_only_missing_values() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, (2, 200))
    frame = pd.DataFrame({"a": pd.Categorical(np.array(["x", "y"])[a]), "b": pd.Categorical(b)})
    pairs = CategoryInteractions(1).fit(frame, a ^ b)
    new = frame.iloc[:3].copy()
    new.loc[1, "a"] = new.loc[2, "b"] = np.nan
    (name,) = set(pairs.transform(new)) - set(frame)
    whole = f"{new['b'][0]} x {new['a'][0]}"
    for rows, made in ((new, [whole, None, None]), (new[1:2], [None]), (new[1:], [None, None])):
        column = pairs.transform(rows)[name]
        assert [value if isinstance(value, str) else None for value in column] == made


def test_categories_with_only_chance_information_are_not_combined() -> None:
    """Each of 36 pairs of categories has three rows of one class and two of the other class."""
    i = np.arange(180)
    frame = pd.DataFrame({"a": i % 6, "b": i // 6 % 6}).astype("category")
    assert not CategoryInteractions(1).fit(frame, (i % 6 + i // 6 + i // 36) % 2).chosen_


def test_most_informative_combination_of_numbers_is_made() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 60))
    frame = pd.DataFrame({"a": a, "b": b, "same": 1.0})  # of which nothing may warn
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = ArithmeticCombinations(1).fit(frame, a * b > 0).transform(frame)
    (name,) = set(made) - set(frame)
    assert made[name].to_numpy() == pytest.approx(a * b)


def test_columns_with_many_categories_are_reduced_for_histograms() -> None:
    texts = pd.Categorical([f"v{i % 300}" if i < 600 else "v7" for i in range(700)])
    frame = pd.DataFrame({"x": np.arange(700.0), "many": texts})
    bound = BoundCategories().fit(frame)
    made = bound.transform(frame)
    assert made["many"].nunique() == 255
    assert "v7" in set(made["many"].dropna())
    assert made["x"].equals(frame["x"])
    new = bound.transform(pd.DataFrame({"x": [0.0], "many": pd.Categorical(["new"])}))
    assert new["many"].isna().all()


def aggregated(min_frequency: int, aggregation: str) -> tuple[list[str], list[list[float]]]:
    """Return codes and matrix of two patients, with an earlier row of the first patient."""
    day = pd.Timestamp(2020, 1, 1)
    seen = [(1, day, "A", 2.0), (1, day + pd.Timedelta(days=1), "A", np.nan), (1, day, "B", -1.0)]
    never = [(1, pd.NaT, "SEX", np.nan), (2, pd.NaT, "SEX", np.nan)]
    later = (1, day + pd.Timedelta(days=9), "A", 5.0)
    then = day + pd.Timedelta(days=4)
    rows = [(1, day), (1, then), (2, then)]
    X = event_rows([*seen, *never, later, (2, day, "A", np.nan)], rows)
    made = EventAggregation(min_frequency, aggregation).fit(X)
    return made.codes_, made.transform(X).toarray().tolist()


@pytest.mark.parametrize(
    ("aggregation", "of_a"),
    [("binary", [1, 1, 1]), ("count", [1, 2, 1]), ("sum", [2, 3, 1]), ("average", [2, 2, 1])],
)
def test_events_of_a_code_are_aggregated_by_row(aggregation, of_a) -> None:
    assert aggregated(2, aggregation) == (["A", "SEX"], [[a, 1] for a in of_a])
    codes, matrix = aggregated(1, aggregation)
    assert codes == ["A", "B", "SEX"]
    of_b = -1 if aggregation in ("sum", "average") else 1
    assert [row[1] for row in matrix] == [of_b, of_b, 0]
    with pytest.raises(ValueError, match="no code"):
        aggregated(3, aggregation)


@pytest.mark.parametrize("name", [*TABLES, *OF_EVENTS])
def test_models_without_epochs_are_linear_kernels_or_neighbors(name) -> None:
    space = SPACES[name]
    known = {algorithm.id for algorithm in space.steps[-1].algorithms}
    in_epochs = iterative_algorithms(space.steps[-1], 0 if space.target == "regression" else 2)
    assert known - in_epochs <= {"logistic_regression", "ridge", "k_nearest", "kernel_svm"}
