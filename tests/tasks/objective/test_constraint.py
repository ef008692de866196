"""Constraints and the quantities that they bound."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from inputs import stored, write_table
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.dummy import DummyClassifier
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.tree import DecisionTreeClassifier
from studies import context_of, draw, evaluate

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.storage.keys import quantity_record
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
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


@pytest.mark.parametrize(
    ("text", "name", "bound"),
    [
        (" model_size_bytes <= 1e6 ", "model_size_bytes", 1e6),
        ("false_positive_rate<=0", "false_positive_rate", 0.0),
        ("group_gap(age, bins=20:30:40, metric=auroc) <= 0.07",
         "group_gap(age, bins=20:30:40, metric=auroc)", 0.07),
        ("disparate_impact(age, bins=20:30:40)>=0.8",
         "disparate_impact(age, bins=20:30:40)", 0.8),
    ],
)  # fmt: skip
def test_constraint_is_read_and_written_back(text, name, bound) -> None:
    bounded = parse_constraint(text)
    assert (bounded.constraint.name, bounded.constraint.bound) == (name, bound)
    assert bounded.quantity.text == name
    assert parse_constraint(bounded.text) == bounded
    assert from_document(QuantityBound, to_document(bounded)) == bounded


@pytest.mark.parametrize(
    "text",
    [
        *("latency_us", "latency_us<10", "latency_us>=10", "latency_us<=fast", "latency_us<=-1"),
        *("latency_us<=inf", "latency_us(age)<=1", "group_gap<=0.1"),
        *("group_gap(age, bins=20)<=0.1", "group_gap(age, bins=40:20:60)<=0.1"),
        *("group_gap(age, sex)<=0.1", "group_gap(age)>=0.1", "false_positive_rate<=5"),
        *("disparate_impact(age)>=80", "disparate_impact(age, metric=auroc)>=0.8"),
    ],
)
def test_error_names_the_cause_of_an_unreadable_constraint(text) -> None:
    with pytest.raises(BadInput, check=lambda e: (e.option, e.value) == ("constraint", text)):
        parse_constraint(text)


def test_upper_bound_on_disparate_impact_is_refused_with_both_alternatives() -> None:
    for sentence in (r"disparate_impact\(sex\)>=0.8", r"group_gap\(sex\)<=0.1"):
        with pytest.raises(BadInput, match=sentence):
            parse_constraint("disparate_impact(sex)<=0.2")


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


def test_user_function_may_receive_rows_and_returns_a_number() -> None:
    """The function gets rows with dates and categories, and the values of the target as classes."""
    days = ["2024-04-01", "2024-05-01"] * 30
    frame = pd.DataFrame({"day": days, "sex": ["f", "m"] * 30, "y": [0.5, 1.5] * 30})
    dataset = frame_dataset(Source("", target="y"), frame)
    kinds = make_column_selector(dtype_include="number")
    steps = ColumnTransformer([("numbers", SimpleImputer(), kinds)])
    model = make_pipeline(steps, DecisionTreeClassifier()).fit(dataset.X, dataset.labels)
    every = np.arange(len(frame))
    rows = HeldOutRows(dataset, every, Predictions(dataset.y), metric_named("error"), lambda: model)
    assert measure_quantity(Quantity("own.py:share", code=OWN_QUANTITY), rows) == 1.0
    text = "def text(model, X, y):\n    return '0.5'\n"
    with pytest.raises(ValueError, match=r"returned '0\.5'"):
        measure_quantity(Quantity("own.py:text", code=text), rows)


def test_false_positive_rate_is_a_share_of_the_negatives() -> None:
    rate = Quantity("false_positive_rate")
    found = held_out([0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 0, 1])
    assert measure_quantity(rate, found) == 0.25
    assert measure_quantity(rate, held_out([1, 1], [1, 0])) == 0.0
    other = replace(found, metric=metric_named("error", positive=0))
    assert measure_quantity(rate, other) == 0.5


def test_bins_include_the_last_edge_and_exclude_values_outside() -> None:
    ages = pd.Series([10.0, 20.0, 29.0, 30.0, 40.0, 41.0, np.nan])
    found = held_out([0] * 7, [1, 0, 1, 1, 1, 0, 0], column=ages)
    quantity = Quantity("group_gap", "age", bins=(20.0, 30.0, 40.0))
    assert measure_quantity(quantity, found) == 50.0  # 50 percent of [20, 30), 100 of [30, 40]


@pytest.mark.parametrize(
    ("y", "score", "groups", "metric", "gap"),
    [
        # The worked example: areas 1, 0.5 and 0.5.
        ([1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0],
         [0.9, 0.2, 0.6, 0.4, 0.7, 0.8, 0.3, 0.1, 0.5, 0.9, 0.55, 0.6],
         "aaaabbbbbccc", "auroc", 0.5),
        # Areas 1 and 0.25; c has one class.
        ([0, 1, 0, 1, 0, 1, 0, 1, 1, 1], [0.1, 0.9, 0.2, 0.8, 0.9, 0.1, 0.2, 0.8, 0.5, 0.5],
         "aaaabbbbcc", "auroc", 0.75),
        # Fewer than two groups to compare, and no probabilities.
        ([0, 1, 0, 1, 1, 1], [0.1, 0.9, 0.2, 0.8, 0.5, 0.5], "aaaabb", "auroc", np.nan),
        ([0, 1, 0, 1, 1, 0], None, "aaaabb", "neg_log_loss", np.nan),
    ],
)  # fmt: skip
def test_group_gap_is_the_largest_difference(y, score, groups, metric, gap) -> None:
    p = None if score is None else np.column_stack([1 - np.array(score), score])
    rows = held_out(y, [0] * len(y), p, pd.Series(list(groups), dtype="category"))
    found = measure_quantity(Quantity("group_gap", "age", metric=metric), rows)
    assert found == pytest.approx(gap, nan_ok=True)


@pytest.mark.parametrize(
    ("predicted", "ratio"),
    [([1, 1, 0, 0, 1, 0, 0, 0], 0.5), ([1, 0, 0, 0, 0, 0, 0, 0], 0.0), ([0] * 8, np.nan)],
)
def test_disparate_impact_is_the_ratio_of_selection_rates(predicted, ratio) -> None:
    rows = held_out([0] * 8, predicted, column=pd.Series(list("aaaabbbb"), dtype="category"))
    found = measure_quantity(Quantity("disparate_impact", "age"), rows)
    assert found == pytest.approx(ratio, nan_ok=True)
    constraint = parse_constraint("disparate_impact(age)>=0.5").constraint
    assert (constraint.excess({constraint.name: found}) <= 0) == (ratio == 0.5)


@pytest.mark.parametrize(("name", "n_rows"), [("latency_us", 1), ("batch_latency_us", 1000)])
def test_latency_covers_reading_and_predicting_one_row_or_a_batch(name, n_rows) -> None:
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
    "text",
    [
        *("group_gap(one)<=1", "group_gap(age, bins=90:95:99)<=1"),
        *("group_gap(sex, bins=1:2:3)<=1", "group_gap(day, bins=1:2:3)<=1"),
        *("false_positive_rate<=1", "group_gap(many)<=1"),
        "group_gap(age, metric=r2)<=1",
    ],
)
def test_constraint_on_a_quantity_unavailable_in_the_data_is_refused(text) -> None:
    X = pd.DataFrame({"age": np.arange(30.0) % 9, "one": np.ones(30), "many": np.arange(30.0)})
    X["sex"] = pd.Series(list("abcabcabca") * 3, dtype="category")
    X["day"] = pd.date_range("2020-01-01", periods=30)
    with pytest.raises(BadInput, check=lambda e: e.value == text.split("<=")[0]):
        check_measurable(parse_constraint(text).quantity, dataset(X, 3))


def test_unknown_group_column_is_answered_with_the_columns_of_the_table(tmp_path) -> None:
    table = pd.read_csv(write_table(tmp_path))
    table["signup"] = pd.date_range("2020-01-01", periods=len(table)).astype(str)
    table.to_csv(tmp_path / "dated.csv", index=False)
    read = read_source(Source(str(tmp_path / "dated.csv"), target="target"))
    with pytest.raises(BadInput, match=r"color, signup$"):
        check_measurable(Quantity("group_gap", "colour"), read)
    with pytest.raises(BadInput, match="'signup' has dates"):
        check_measurable(Quantity("group_gap", "signup"), read)


@pytest.mark.slow
def test_quantities_of_a_trial_are_measured_once_and_kept(tmp_path) -> None:
    plain = context_of(tmp_path)
    query = draw(plain, 0)
    assert evaluate(plain, query).constraints == {}
    size = Quantity("model_size_bytes")
    limited = replace(plain, quantities=(Quantity("latency_us"), size))
    later = evaluate(limited, query)  # of what was kept
    assert all(step.hit for step in later.steps)
    assert set(later.constraints) == {"latency_us", "model_size_bytes"}
    assert all(value > 0 for value in later.constraints.values())
    assert evaluate(limited, query).constraints == later.constraints
    record = quantity_record(later.predictions[0], size.digest)
    assert open_store(limited.store).records.exists(record)


def test_groups_may_come_from_a_dropped_column(tmp_path) -> None:
    table = str(write_table(tmp_path))
    constraint = (parse_constraint("group_gap(color)<=1"),)
    options = StudyOptions(constraint=constraint, drop=("color", "b"))
    aside = options.source.aside
    assert aside == ("color",)
    kept = read_source(Source(table, target="target"))
    dropped = read_source(Source(table, target="target", drop=("color",), aside=aside))
    assert "color" not in dropped.X
    quantity = Quantity("group_gap", "color")
    check_measurable(quantity, dropped)
    pd.testing.assert_series_equal(dropped.columns["color"], kept.X["color"])
    assert list(stored(dropped, tmp_path).aside) == ["color"]
    without = read_source(Source(table, target="target", drop=("color",)))
    assert without.digest() != dropped.digest()


def test_error_names_groups_missing_from_a_fold() -> None:
    table = dataset(pd.DataFrame({"group": pd.Categorical(list("aabbcab"))}))
    split = Split(np.array([0, 1, 0, 1, 0, TEST, 2]), 3, 0)
    with pytest.raises(BadInput, check=lambda e: "a, c" in e.reason):
        check_constraints([parse_constraint("group_gap(group)<=1")], table, split)
    held_out = Split(np.array([0, 1, 0, 1, TEST, 0, 1]), 2, 0)
    table = dataset(pd.DataFrame({"group": pd.Categorical(list("aabbccb"))}))
    notes = check_constraints([parse_constraint("group_gap(group)<=1")], table, held_out)
    assert notes == ["group_gap(group): the smallest of 3 groups has 2 rows"]
