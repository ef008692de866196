"""The modern spaces on a rough table, and features constructed of tables and events."""

import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import event_rows, write_meds
from studies import evaluate, problem_of, store_of

from prefect_tune.optimizers import Query, Space
from prefect_tune.optimizers.methods.flash.design import PathTable, design_order
from prefect_tune.optimizers.space.configuration import default_choice, default_configuration
from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.storage.keys import model_record
from prefect_tune.tasks.catalogue.combinations import ArithmeticCombinations, CategoryInteractions
from prefect_tune.tasks.catalogue.construction import BoundCategories, EventAggregation
from prefect_tune.tasks.catalogue.gaps_and_categories import imputer_with_indicators, target_encoder
from prefect_tune.tasks.catalogue.spaces import SPACES
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.schema import like_training
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.final.refit import Member, store_model
from prefect_tune.tasks.fitting.fitting import FoldData, fit_transformer
from prefect_tune.tasks.fitting.recipe import MatrixSummary, recipe
from prefect_tune.tasks.problem import StudyContext, open_store

N = 120
TABLES = {"modern": ("logistic_regression", "random_forest"),
          "modern_regression": ("ridge", "extra_trees")}  # fmt: skip
"""Two plain models of each space for tables."""
OF_EVENTS = ("modern_healthcare", "events")


def rough_table(target: str) -> pd.DataFrame:
    """Gaps, few and many categories, a constant column, names that are no identifiers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2))
    colour = rng.choice(["red", "green", "blue"], N, p=[0.5, 0.45, 0.05])
    frame = pd.DataFrame({'a "quoted" {name}': x[:, 0], "b[1]": x[:, 1], "same": 1.0})
    frame["colour"] = colour
    frame["town"] = [f"town {i % 40}" for i in range(N)]
    frame["two words"] = rng.choice(["yes", "no"], N)
    score = x[:, 0] * x[:, 1] + 0.5 * (colour == "red") + 0.1 * rng.normal(size=N)
    frame.loc[rng.choice(N, 20, replace=False), "b[1]"] = np.nan
    frame.loc[rng.choice(N, 20, replace=False), "colour"] = None
    classes = np.array(["high", "low", "mid"])[np.digitize(score, [0.0, 0.6])]
    return frame.assign(target=classes if target == "classes" else 10 * score)


@pytest.fixture(scope="module")
def contexts(tmp_path_factory) -> dict[str, StudyContext]:
    """A study of each modern space."""
    folder = tmp_path_factory.mktemp("modern")
    store = StoreAddress(str(folder / "store"))
    found = {}
    for name in (*TABLES, *OF_EVENTS):
        space, metric = SPACES[name], "error" if SPACES[name].target == "classes" else "r2"
        if name in OF_EVENTS:
            meds = folder / "meds"
            source = Source(str(meds if meds.exists() else write_meds(meds)), labels="labels/task")
        else:
            rough_table(space.target).to_parquet(folder / f"{name}.parquet")
            table = str(folder / f"{name}.parquet")
            source = Source(table, target="target", categorical=("town",))
        problem = problem_of(source, open_store(store), space, metric=metric)
        found[name] = StudyContext(name, problem, store, use_cache=True)
    return found


def with_algorithms(space: Space, **chosen: str) -> Query:
    """Defaults of the simplest path with these algorithms, `_` for spaces."""
    path = tuple(chosen.get(s.name.replace(" ", "_"), s.simplest.id) for s in space.searched)
    return Query(default_configuration(space, space.canonical_path(path)))


USUAL = (
    ("modern", {"fit_model": "lightgbm"}),
    ("modern", {"construct": "interactions", "fit_model": "logistic_regression"}),
    ("events", {"construct_features": "windows", "fit_model": "random_forest"}),
    ("events", {"construct_features": "aggregate", "fit_model": "random_forest"}),
)


def paths() -> Iterator[Any]:
    """Every model, and every choice of tables before two plain models."""
    yield from USUAL
    for name in (*TABLES, *OF_EVENTS):
        *before, last = SPACES[name].steps
        dense = {"densify": "to_dense"} if name in OF_EVENTS else {}
        for model in last.algorithms:
            yield pytest.param(name, {**dense, "fit_model": model.id}, marks=pytest.mark.full)
        for model in TABLES.get(name, ()):
            for step in before:
                for algorithm in step.algorithms:
                    if not algorithm.only_ignored:
                        path = {step.name: algorithm.id, "fit_model": model}
                        yield pytest.param(name, path, marks=pytest.mark.full)


def check_final_model(context: StudyContext, query: Query) -> None:
    """It pickles, and predicts rows of unseen categories, new gaps and other types."""
    store = store_of(context)
    store_model(context, [Member(0, query.to_json())])
    model = store.records.get(model_record(context.study))["model"]
    dataset = load_dataset(store, context.problem.dataset)
    rows = dataset.X
    if dataset.row_reader is not None:
        new = rough_table("classes").drop(columns="target").iloc[:9].copy()
        new.loc[new.index[0], "colour"] = "violet"
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
def test_a_pipeline_is_fitted_kept_and_predicts_what_was_never_seen(contexts, name, path) -> None:
    query = with_algorithms(SPACES[name], **path)
    if SPACES[name].is_feasible(query.configuration.path):
        assert np.isfinite(evaluate(contexts[name], query).loss)
        check_final_model(contexts[name], query)


@pytest.mark.slow
def test_what_only_the_last_model_ignores_is_served_to_it(contexts) -> None:
    space, context = SPACES["modern"], contexts["modern"]
    evaluate(context, with_algorithms(space, rescale="quantiles", fit_model="k_nearest"))
    forest = evaluate(context, with_algorithms(space, rescale="quantiles", fit_model="extra_trees"))
    hits = {s.step: s.hit for s in forest.steps if s.step != "fit model"}
    assert hits == {"impute": True, "encode": True}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["modern", *(pytest.param(n, marks=pytest.mark.full) for n in OF_EVENTS)]
)
def test_the_design_of_flash_has_the_rank_of_the_paths_that_can_run(name) -> None:
    table = PathTable(SPACES[name], 0)
    assert table.rank == np.linalg.matrix_rank(table.one_hot)
    assert len(table) == SPACES[name].n_feasible_paths
    design = design_order(table.one_hot, table.rank, start=table.plain)
    assert np.linalg.matrix_rank(table.one_hot[design]) == table.rank
    assert len(table.plain) == len(SPACES[name].steps[-1].algorithms)


def test_rows_are_encoded_without_their_own_targets() -> None:
    """A category of its own for each row would tell its target otherwise."""
    algorithm = SPACES["modern"].step("encode").algorithm("target")
    names = pd.DataFrame({"name": pd.Categorical([f"row {i}" for i in range(60)])})
    y = np.array(["a", "b"])[np.arange(60) % 2]
    how = recipe(algorithm, default_choice(algorithm), MatrixSummary.of(names), balanced=False)
    made = fit_transformer(how, 0, FoldData(names, names, y, np.array(["a", "b"])))
    train, held_out = made.parts["train"][:, 0], made.parts["held_out"][:, 0]
    assert abs(np.corrcoef(held_out, y == "b")[0, 1]) > 0.9
    assert np.ptp(train) < 0.01 < np.ptp(held_out)
    assert how.to_json(0)["out_of_fold"]


def test_targets_are_encoded_by_parts_that_the_seed_draws_and_nothing_warns() -> None:
    names = pd.DataFrame({"name": pd.Categorical(["a", "b", "c"] * 20)})
    y = np.random.default_rng(0).normal(size=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first, same, other = (
            target_encoder(smooth=1, target="numbers", random_state=seed).fit_transform(names, y)
            for seed in (0, 0, 1)
        )
    assert (first == same).all()
    assert not (first == other).all()


def test_gap_indicators_coexist_with_a_column_of_the_same_name() -> None:
    named = {"a": [1.0, np.nan, 3.0], "missingindicator_a": pd.Categorical(list("xyx"))}
    gaps = pd.DataFrame(named)
    made = imputer_with_indicators().fit(gaps).transform(gaps)
    assert made.columns.is_unique
    assert made["gaps__missingindicator_a"].tolist() == [0.0, 1.0, 0.0]
    assert made["numbers__a"].tolist() == [1.0, 2.0, 3.0]
    assert made["categories__missingindicator_a"].tolist() == list("xyx")


def test_categories_interact_also_in_rows_that_have_gaps_alone() -> None:
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


def test_columns_that_never_change_combine_to_nothing_and_nothing_warns() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "same": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for names, n_made in ((["a", "b", "same"], 1), (["same", "flat"], 0)):
            X = frame.assign(flat=2.0)[names]
            made = ArithmeticCombinations(1).fit(X, frame["a"] * frame["b"] > 0).transform(X)
            assert made.shape[1] - X.shape[1] == n_made


def test_columns_of_many_categories_reach_histograms() -> None:
    texts = pd.Categorical([f"v{i % 300}" if i < 600 else "v7" for i in range(700)])
    frame = pd.DataFrame({"x": np.arange(700.0), "many": texts})
    bound = BoundCategories().fit(frame)
    made = bound.transform(frame)
    assert made["many"].nunique() == 255
    assert "v7" in set(made["many"].dropna())
    assert made["x"].equals(frame["x"])
    new = bound.transform(pd.DataFrame({"x": [0.0], "many": pd.Categorical(["new"])}))
    assert new["many"].isna().all()


@pytest.mark.parametrize("name", ["lightgbm", "xgboost", "catboost"])
def test_versions_of_required_libraries_are_in_keys(name) -> None:
    algorithm, summary = SPACES["modern"].step("fit model").algorithm(name), MatrixSummary(9, 2, "")
    how = recipe(algorithm, default_choice(algorithm), summary, balanced=False)
    assert f"{name} " in how.library
    assert "prefect_tune " in how.library


AGGREGATIONS = ("binary", "count", "sum", "average")


def oracle(X: EventRows, min_frequency: int, aggregation: str) -> tuple[list[str], list[list]]:
    """The same in plain Python: events of each row one after the other."""
    events = list(X.events.itertuples(index=False))
    of_row = [
        [e for e in events if e.subject_id == r.subject_id and not e.time > r.prediction_time]
        for r in X.rows.itertuples(index=False)
    ]
    patients: dict[str, set] = {}
    for row in of_row:
        for event in row:
            patients.setdefault(event.code, set()).add(event.subject_id)
    codes = sorted(code for code, having in patients.items() if len(having) >= min_frequency)

    def cell(row: list, code: str) -> float:
        mine = [e for e in row if e.code == code]
        values = [e.value for e in mine if not np.isnan(e.value)]
        if not mine or any(pd.isna(e.time) for e in mine) or aggregation == "binary":
            return float(bool(mine))
        if aggregation == "count":
            return float(len(mine))
        if aggregation == "sum":
            return float(sum(values) + len(mine) - len(values))
        return sum(values) / len(values) if values else 1.0

    return codes, [[cell(row, code) for code in codes] for row in of_row]


TIMES = [pd.NaT, *(pd.Timestamp(2020, 1, day) for day in range(1, 6))]
VALUES = [np.nan, -2.0, 0.0, 1.0, 3.5]
EVENT = st.tuples(*map(st.sampled_from, ([1, 2, 3, 4], TIMES, "ABCD", VALUES)))
LABEL = st.tuples(st.integers(1, 4), st.integers(1, 6))


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(EVENT, min_size=1, max_size=30),
    st.lists(LABEL, min_size=1, max_size=8),
    st.integers(1, 3),
    st.sampled_from(AGGREGATIONS),
)
def test_matrices_equal_plain_python(events, labels, min_frequency, aggregation) -> None:
    rows = [(i, pd.Timestamp(2019, 12, 31) + pd.Timedelta(days=day)) for i, day in labels]
    X = event_rows(events, rows)
    if (X.start == X.stop).any():  # reading leaves out labels without events before them
        return
    codes, expected = oracle(X, min_frequency, aggregation)
    construct = EventAggregation(min_frequency, aggregation)
    if not codes:
        with pytest.raises(ValueError, match="no code"):
            construct.fit(X)
        return
    assert construct.fit(X).codes_ == codes
    made = construct.transform(X)
    np.testing.assert_allclose(made.toarray(), expected, rtol=1e-12)
    assert made.indices.dtype == made.indptr.dtype == np.int32  # as trees take it
