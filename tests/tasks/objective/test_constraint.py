"""Constraints and the quantities that they bound."""

import re
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import write_table
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.dummy import DummyClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import DecisionTreeClassifier
from studies import context_of, draw, evaluate

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.optimizers import UnknownName
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.keys import quantity_record
from prefect_tune.storage.waiting import StoreLost
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset, import_dataset, load_dataset
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.row_reader import RowReader
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import TEST, Split
from prefect_tune.tasks.data.tables import frame_dataset
from prefect_tune.tasks.objective.constraints import (
    HeldOutRows,
    check_constraints,
    check_measurable,
    measure_quantity,
    parse_constraint,
)
from prefect_tune.tasks.objective.metric import Quantity, QuantityBound, metric_named
from prefect_tune.tasks.objective.predictions import Predictions
from prefect_tune.tasks.problem import open_store
from prefect_tune.tasks.trial import evaluate as evaluation

LATENCY = Quantity("latency_us")


@pytest.mark.parametrize(
    ("text", "name", "bound"),
    [
        ("latency_us<=10", "latency_us", 10.0),
        (" model_size_bytes <= 1e6 ", "model_size_bytes", 1e6),
        ("false_positive_rate<=0", "false_positive_rate", 0.0),
        ("disparate_impact(age)<=0.1", "disparate_impact(age)", 0.1),
        (
            "disparate_impact(age, bins=20:30:40, metric=auroc) <= 0.07",
            "disparate_impact(age, bins=20:30:40, metric=auroc)",
            0.07,
        ),
    ],
)
def test_a_constraint_is_read_and_written_back(text, name, bound) -> None:
    bounded = parse_constraint(text)
    constraint = bounded.constraint
    assert (constraint.name, constraint.bound) == (name, bound) == (bounded.quantity.text, bound)
    assert from_document(QuantityBound, to_document(bounded)) == bounded


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("latency_us", "QUANTITY<=VALUE"),
        ("latency_us<10", "QUANTITY<=VALUE"),
        ("latency_us>=10", "QUANTITY<=VALUE"),
        ("latency_us<=fast", "'fast'"),
        ("latency_us<=-1", ">= 0"),
        ("latency_us<=inf", ">= 0"),
        ("latency_us(age)<=1", "got 'age'"),
        ("disparate_impact<=0.1", "the column"),
        ("disparate_impact(age, bins=20)<=0.1", "ascending edges"),
        ("disparate_impact(age, bins=40:20:60)<=0.1", "ascending edges"),
        ("disparate_impact(age, sex)<=0.1", "got 'sex'"),
        ("nowhere.py:f<=1", "nowhere.py"),
        ("false_positive_rate<=5", "0.05"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text, message) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        parse_constraint(text)
    assert text.split("<=")[0] in str(refused.value)


@pytest.mark.parametrize(
    ("text", "guess"),
    [("latencyus<=1", "latency_us"), ("disparate_impact(age, metric=aurc)<=1", "auroc")],
)
def test_an_unknown_quantity_or_metric_is_named_with_the_nearest(text, guess) -> None:
    with pytest.raises(UnknownName, match=guess):
        parse_constraint(text)


def held_out(y, label, score=None, column=None) -> HeldOutRows:
    frame = pd.DataFrame({"age": np.arange(len(y), dtype=float) if column is None else column})
    return HeldOutRows(
        dataset=Dataset("d", "table", frame, np.array(y, dtype=np.int32), ("no", "yes")),
        rows=np.arange(len(y)),
        predictions=Predictions(np.array(label, dtype=np.int32), score),
        metric=metric_named("error"),
        pipeline=lambda: None,
    )


OWN_QUANTITY = """
def share(pipeline, X, y):
    assert list(pipeline.classes_) == [0.5, 1.5], pipeline.classes_
    raw = X.drop(columns=[c for c in X if c.startswith("day.")]).assign(day="2024-05-01")
    return float((pipeline.predict(raw.astype({"sex": object})) == 1.5).mean())
"""


def test_a_function_of_the_user_may_pass_rows_as_files_have_them() -> None:
    """Dates, and categories of another type; classes are those of the target."""
    days = ["2024-04-01", "2024-05-01"] * 30
    frame = pd.DataFrame({"day": days, "sex": ["f", "m"] * 30, "y": [0.5, 1.5] * 30})
    dataset = frame_dataset(Source("", target="y"), frame)
    kinds = make_column_selector(dtype_include="number")
    steps = ColumnTransformer([("numbers", SimpleImputer(), kinds)])
    model = make_pipeline(steps, DecisionTreeClassifier()).fit(dataset.X, dataset.labels)
    every = np.arange(len(frame))
    rows = HeldOutRows(dataset, every, Predictions(dataset.y), metric_named("error"), lambda: model)
    assert measure_quantity(Quantity("own.py:share", code=OWN_QUANTITY), rows) == 1.0


def test_false_positives_are_a_share_of_the_negatives() -> None:
    found = held_out([0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 1])
    assert measure_quantity(Quantity("false_positive_rate"), found) == 0.25
    assert measure_quantity(Quantity("false_positive_rate"), held_out([1, 1], [1, 0])) == 0.0
    other = replace(found, metric=metric_named("error", positive=0))
    assert measure_quantity(Quantity("false_positive_rate"), other) == 0.5


def test_bins_leave_out_what_lies_outside_and_hold_their_last_edge() -> None:
    ages = pd.Series([10.0, 20.0, 29.0, 30.0, 40.0, 41.0, np.nan])
    found = held_out([0] * 7, [1, 0, 1, 1, 1, 0, 0], column=ages)
    quantity = Quantity("disparate_impact", "age", bins=(20.0, 30.0, 40.0))
    assert (
        measure_quantity(quantity, found) == 50.0
    )  # errors 50 percent of [20, 30), 100 of [30, 40]


def test_a_group_on_which_the_metric_is_not_defined_is_left_out() -> None:
    groups = pd.Series(["a"] * 4 + ["b"] * 4 + ["c"] * 2, dtype="category")
    score = np.array([0.1, 0.9, 0.2, 0.8, 0.9, 0.1, 0.2, 0.8, 0.5, 0.5])
    y = [0, 1, 0, 1, 0, 1, 0, 1, 1, 1]
    found = held_out(y, [0] * 10, np.column_stack([1 - score, score]), groups)
    quantity = Quantity("disparate_impact", "age", metric="auroc")
    assert measure_quantity(quantity, found) == pytest.approx(
        0.75
    )  # areas 1 and 0.25; c has one class


def test_disparate_impact_of_the_worked_example() -> None:
    y = [1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0]
    score = np.array([0.9, 0.2, 0.6, 0.4, 0.7, 0.8, 0.3, 0.1, 0.5, 0.9, 0.55, 0.6])
    groups = pd.Series(list("aaaabbbbbccc"), dtype="category")
    label = (score >= 0.5).astype(int)
    found = held_out(y, label, np.column_stack([1 - score, score]), groups)
    areas = Quantity("disparate_impact", "age", metric="auroc")
    assert measure_quantity(areas, found) == pytest.approx(0.5)  # areas 1, 0.5 and 0.5
    assert measure_quantity(Quantity("false_positive_rate"), found) == 0.5


def test_with_fewer_than_two_groups_to_compare_it_is_not_measured() -> None:
    groups = pd.Series(["a"] * 4 + ["b"] * 2, dtype="category")
    score = np.array([0.1, 0.9, 0.2, 0.8, 0.5, 0.5])
    found = held_out([0, 1, 0, 1, 1, 1], [0] * 6, np.column_stack([1 - score, score]), groups)
    assert np.isnan(measure_quantity(Quantity("disparate_impact", "age", metric="auroc"), found))
    without_scores = held_out([0, 1, 0, 1, 1, 0], [0] * 6, None, groups)
    assert np.isnan(
        measure_quantity(Quantity("disparate_impact", "age", metric="neg_log_loss"), without_scores)
    )


@pytest.mark.parametrize(("name", "n_rows"), [("latency_us", 1), ("batch_latency_us", 1000)])
def test_latency_is_of_calls_with_one_row_or_a_batch_and_reads_rows(name, n_rows) -> None:
    X = pd.DataFrame({"a": np.zeros(3000)})
    model = DummyClassifier().fit(X, np.arange(3000) % 2)
    reader, predicted, read = RowReader.of(X), [], []
    transform, predict = reader.transform, model.predict
    reader.transform = lambda rows: read.append(len(rows)) or transform(rows)
    model.predict = lambda rows: predicted.append(len(rows)) or predict(rows)
    table = replace(dataset(X), reader=reader)
    found = replace(held_out([0], [0]), dataset=table, rows=np.arange(3000))
    found = replace(found, pipeline=lambda: Pipeline([("model", model)]))
    assert 0 < measure_quantity(Quantity(name), found) < 1e6
    assert set(read) == set(predicted) == {n_rows}
    assert len(predicted) >= 7  # two to measure the repeats, and five repeats at least


def dataset(X: pd.DataFrame, n_classes: int = 2) -> Dataset:
    y = (np.arange(len(X)) % n_classes).astype(np.int32)
    return Dataset("d", "table", X, y, tuple(f"c{i}" for i in range(n_classes)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("disparate_impact(agge)<=1", "'age'"),
        ("disparate_impact(one)<=1", "two groups (1)"),
        ("disparate_impact(age, bins=90:95:99)<=1", "two groups (0)"),
        ("disparate_impact(sex, bins=1:2:3)<=1", "categories"),
        ("false_positive_rate<=1", "has 3"),
        ("disparate_impact(many)<=1", "30 different numbers"),
        ("disparate_impact(day, bins=1:2:3)<=1", "categories"),
        ("disparate_impact(age, metric=r2)<=1", "classes"),
    ],
)
def test_what_cannot_be_measured_on_the_data_is_refused(text, message) -> None:
    X = pd.DataFrame({"age": np.arange(30.0) % 9, "one": np.ones(30), "many": np.arange(30.0)})
    X["sex"] = pd.Series(list("abcabcabca") * 3, dtype="category")
    X["day"] = pd.date_range("2020-01-01", periods=30)
    quantity = parse_constraint(text).quantity
    with pytest.raises(BadInput, match=re.escape(message)):
        check_measurable(quantity, dataset(X, 3))


@pytest.mark.slow
def test_quantities_of_a_trial_are_measured_once_and_kept(tmp_path) -> None:
    limited = replace(context_of(tmp_path), quantities=(LATENCY, Quantity("model_size_bytes")))
    query = draw(limited, 0)
    first = evaluate(limited, query).constraints
    assert set(first) == {"latency_us", "model_size_bytes"}
    assert all(value > 0 for value in first.values())
    assert evaluate(limited, query).constraints == first
    records = open_store(limited.store).records
    key = evaluate(limited, query).predictions[0]
    assert records.exists(quantity_record(key, LATENCY.digest))


@pytest.mark.slow
def test_a_quantity_asked_for_later_is_measured_of_what_was_kept(tmp_path) -> None:
    plain = context_of(tmp_path)
    query = draw(plain, 0)
    assert evaluate(plain, query).constraints == {}
    later = evaluate(replace(plain, quantities=(LATENCY,)), query)
    assert all(step.hit for step in later.steps)
    assert later.constraints["latency_us"] > 0


def test_a_dropped_column_still_gives_the_groups(tmp_path) -> None:
    table = str(write_table(tmp_path))
    constraint = (parse_constraint("disparate_impact(colour)<=1"),)
    options = StudyOptions(constraint=constraint, drop=("colour", "b"))
    aside = options.source.aside
    assert aside == ("colour",)
    kept = read_source(Source(table, target="target"))
    dropped = read_source(Source(table, target="target", drop=("colour",), aside=aside))
    assert "colour" not in dropped.X
    quantity = Quantity("disparate_impact", "colour")
    check_measurable(quantity, dropped)
    pd.testing.assert_series_equal(dropped.columns["colour"], kept.X["colour"])
    store = ArtifactStore(StoreAddress(str(tmp_path / "other")))
    assert list(load_dataset(store, import_dataset(dropped, store)).aside) == ["colour"]
    without = read_source(Source(table, target="target", drop=("colour",)))
    assert without.digest() != dropped.digest()
    store.close()


@pytest.mark.slow
def test_a_store_that_is_lost_while_measuring_is_not_the_quantity_s_fault(tmp_path) -> None:
    def lost(*_: object) -> float:
        raise StoreLost("gone")

    made = replace(context_of(tmp_path), quantities=(Quantity("model_size_bytes"),))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(evaluation, "measure_quantity", lost)
        with pytest.raises(StoreLost, match="gone"):
            evaluate(made, draw(made, 0))


def test_a_function_of_ones_own_must_return_a_number(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def text(model, X, y):\n    return '0.5'\n")
    found = replace(held_out([0, 1], [0, 1]), pipeline=lambda: Pipeline([("m", DummyClassifier())]))
    with pytest.raises(ValueError, match=r"returned '0\.5'"):
        measure_quantity(parse_constraint("mine.py:text<=1").quantity, found)


def test_a_function_brings_modules_of_a_folder_that_its_file_adds_to_the_path(
    monkeypatch, tmp_path
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "added_helper.py").write_text("VALUE = 1.0\n")
    added = str(tmp_path / "lib")
    (tmp_path / "mine.py").write_text(
        f"import sys\nsys.path.insert(0, {added!r})\nimport added_helper\n"
        "def size(model, X, y):\n    return added_helper.VALUE\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    quantity = parse_constraint(f"{tmp_path / 'mine.py'}:size<=1").quantity
    assert [module.name for module in quantity.behind.modules] == ["added_helper"]


def test_groups_that_are_missing_in_a_fold_are_refused_by_name() -> None:
    table = dataset(pd.DataFrame({"group": pd.Categorical(list("aabbcab"))}))
    split = Split(np.array([0, 1, 0, 1, 0, TEST, 2]), 3, 0)
    with pytest.raises(BadInput, match=r"groups.*a, c"):
        check_constraints([parse_constraint("disparate_impact(group)<=1")], table, split)
