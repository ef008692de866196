"""Champion and challenger on fresh rows: selection of the rows, and predictions of the champion.

The models are fitted here, and stored like final models.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import written
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from studies import problem_of

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.files import RECORDS
from prefect_tune.storage.keys import model_record
from prefect_tune.tasks.catalogue.spaces import space_named
from prefect_tune.tasks.data.dataset import Dataset, load_dataset, row_ids
from prefect_tune.tasks.data.schema import like_training
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.split import REFIT, TEST, load_split
from prefect_tune.tasks.final.promotion import (
    DecisionRules,
    ModelComparison,
    StudyModel,
    compared,
    fresh_rows,
    matched,
    predictions_on,
)
from prefect_tune.tasks.objective.predictions import Predictions, predictions_of
from prefect_tune.tasks.problem import StudyContext

RULES = DecisionRules(("a", "b"), excludes_test_rows=False, margin=0.0, level=0.02, decision=1)


def frame(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(2, n))
    return pd.DataFrame({"a": a, "b": b, "target": np.where(a + 0.5 * b > 0, "yes", "no")})


class Series:
    """Studies with a model each, in one store."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, ArtifactStore(StoreAddress(str(folder / "store")))

    def study(self, name: str, data: pd.DataFrame, model: Any, **changes: object) -> StudyModel:
        path = written(data, self.folder / f"{name}.parquet")
        source = Source(path, target="target")
        problem = problem_of(source, self.store, space_named("small"), **changes)
        dataset = load_dataset(self.store, problem.dataset)
        rows = np.flatnonzero(load_split(self.store, problem.split).fold != TEST)
        model.fit(dataset.rows(rows), dataset.labels[rows])
        record = model_record(name)
        self.store.records.put(record, {"model": model, "about": {}})
        return StudyModel(record, problem)

    def dataset(self, study: StudyModel) -> Dataset:
        return load_dataset(self.store, study.problem.dataset)

    def fresh(self, old: StudyModel, new: StudyModel, **rules: Any) -> tuple[NDArray, NDArray]:
        """Return positions and ids of the fresh rows."""
        return fresh_rows(self.store, old.problem, new.problem, replace(RULES, **rules))

    def compare(self, old: StudyModel, new: StudyModel) -> ModelComparison:
        context = StudyContext("compared", new.problem, self.store.address)
        return compared(context, old, new, RULES)


@pytest.fixture
def series(tmp_path: Path) -> Series:
    return Series(tmp_path)


def test_better_model_wins_with_at_least_200_fresh_rows(series: Series) -> None:
    old = series.study("old", frame(300), DummyClassifier(), metric="auroc")
    new = series.study("new", frame(3_000, seed=1), LogisticRegression(), metric="auroc")
    found = series.compare(old, new)
    assert found.compared is not None, found.problem
    assert found.compared.is_better
    assert found.n_rows == found.compared.n_rows == 600  # all test rows: none was known
    assert found == series.compare(old, new)
    few = series.study("few", frame(900, seed=1), LogisticRegression(), metric="auroc")
    assert series.compare(old, few) == ModelComparison(180)


def test_training_rows_of_the_champion_are_not_compared(series: Series) -> None:
    # Labels are noise: a champion that remembers its training rows has no error on these alone.
    rng = np.random.default_rng(0)
    data = frame(4_000).assign(target=np.where(rng.random(4_000) < 0.5, "yes", "no"))
    old = series.study("old", data[:2_500], KNeighborsClassifier(1))
    new = series.study("new", data.sample(frac=1, random_state=1), KNeighborsClassifier(1), seed=3)
    assert 42 < series.compare(old, new).compared.champion.value < 58
    rows, ids = series.fresh(old, new)
    trained = np.flatnonzero(load_split(series.store, old.problem.split).fold != TEST)
    assert not np.isin(ids, row_ids(series.dataset(old), RULES.identity)[trained]).any()
    assert set(rows) < set(load_split(series.store, new.problem.split).held_out(REFIT))


@pytest.mark.parametrize(
    ("before", "now", "identity"),
    [
        ({}, {"c": 1.5}, ()),  # nothing fixes the columns of ids if a file decides on the test rows
        (
            {"day": "2024-05-01"},
            {"day": "2024-05-02"},
            ("a", "b", "day.days"),
        ),  # snapshots of two days
    ],
)
def test_champion_rows_are_found_despite_new_columns(series: Series, before, now, identity) -> None:
    data = frame(3_000)
    old = series.study("old", data[:2_000].assign(**before), LogisticRegression())
    new = series.study("new", data.assign(**now), LogisticRegression(), seed=3)
    rows, _ = series.fresh(old, new, identity=identity, excludes_test_rows=True)
    assert 100 < len(rows) < 300
    assert rows.min() >= 2_000


def test_rows_known_to_the_challenger_are_not_compared(series: Series) -> None:
    old = series.study("old", frame(300), LogisticRegression())
    twice = pd.concat([frame(500, 1), frame(500, 1), frame(2_000, 2)], ignore_index=True)
    new = series.study("new", twice, LogisticRegression())
    rows, ids = series.fresh(old, new)
    trained = np.flatnonzero(load_split(series.store, new.problem.split).is_training)
    assert not np.isin(ids, row_ids(series.dataset(new))[trained]).any()
    assert len(rows) > 300


def test_rows_that_selected_the_champion_are_not_compared_again(series: Series) -> None:
    data = frame(3_000)
    old = series.study("old", data[:2_000], LogisticRegression())
    new = series.study("new", data, LogisticRegression())
    rows, ids = series.fresh(old, new, excludes_test_rows=True)
    assert len(rows) > 100
    assert not np.isin(ids, row_ids(series.dataset(old), RULES.identity)).any()
    more, _ = series.fresh(old, new)
    assert set(rows) < set(more)


def test_champion_reads_new_rows_by_the_schema_of_the_training_rows(series: Series) -> None:
    # Codes were texts when the champion was trained, and are whole numbers now.
    data = frame(1_500)
    code = np.arange(1_500) % 3
    before = data.assign(code=np.where(code == 2, "x", (code + 1).astype(str)))[:800]
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5)
    old = series.study("old", before, model)
    new = series.study("new", data.assign(code=code % 2 + 1), LogisticRegression())
    now, known = series.dataset(new), series.dataset(old)
    assert known.X["code"].dtype != now.X["code"].dtype
    rows = np.arange(700, 900)
    found = predictions_on(model, known, now, rows)
    written = data.assign(code=(code % 2 + 1).astype(str)).iloc[rows]
    reader = known.row_reader
    assert reader is not None
    expected = predictions_of(model, like_training(written, reader), known.learned_classes)
    assert np.array_equal(found.score, expected.score)


@pytest.mark.parametrize(
    ("learned", "classes", "expected"),
    [
        (("a", "c"), ("a", "b", "c"), [[0.2, 0, 0.8], [1, 0, 0]]),  # an unknown class
        (("a", "b", "c"), ("b", "c"), [[1, 0], [0.5, 0.5]]),  # a class that the data has lost
        ((1, 2), ("1", "2"), [[0.2, 0.8], [1, 0]]),
        (("1", "2"), (1, 2), [[0.2, 0.8], [1, 0]]),
        ((False, True), ("FALSE", "TRUE"), [[0.2, 0.8], [1, 0]]),
    ],
)
def test_classes_are_matched_by_text(learned, classes, expected) -> None:
    score = np.array([[0.2, 0.8, 0], [1.0, 0.0, 0]])[:, : len(learned)]
    found = matched(Predictions(score.argmax(axis=1), score), learned, classes)
    assert found.score == pytest.approx(np.array(expected))
    assert found.label.tolist() == np.argmax(expected, axis=1).tolist()


@pytest.mark.parametrize("classes", [("b", "c"), (0, 1)])
def test_champion_that_predicts_an_unknown_class_is_not_compared(classes) -> None:
    with pytest.raises(ValueError, match="'a'"):
        matched(Predictions(np.array([0, 0])), ("a", "b"), classes)


PROBLEMS = {"column": "more", "cell": "low", "model": "fitted", "record": "damaged"}


@pytest.mark.parametrize("what", PROBLEMS)
def test_impossible_comparison_with_the_champion_gives_a_reason(series: Series, what: str) -> None:
    data = frame(2_000).assign(more=np.arange(2_000.0))
    old = series.study("old", data[:1_000], LogisticRegression())
    if what == "column":
        data = data.drop(columns="more")
    elif what == "cell":
        data = data.assign(more=np.where(data.index % 2, "high", "low"))
    new = series.study("new", data, DummyClassifier())
    if what == "model":
        series.store.records.put(old.record, {"model": DummyClassifier(), "about": {}})
    elif what == "record":
        for path in (series.folder / "store" / RECORDS / old.record).rglob("model*"):
            path.write_bytes(b"damaged")
    found = series.compare(old, new)
    assert found.compared is None
    assert PROBLEMS[what] in found.problem
