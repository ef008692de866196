"""Strength and direction of columns, on events whose effects are known."""

import numpy as np
import pandas as pd
import pytest
from inputs import event_rows
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.final.figures import code_of_column, column_effects

N = 300
LINEAR = LogisticRegression(max_iter=500)


def rows() -> tuple[EventRows, np.ndarray]:
    """Code RAISES makes the class likelier, LOWERS less likely, and of NOISE there are ten."""
    rng = np.random.default_rng(0)
    has = {code: rng.random(N) < 0.5 for code in ("RAISES//x", "LOWERS: y")}
    has |= {f"NOISE//{k}": rng.random(N) < 0.5 for k in range(10)}
    day = pd.Timestamp(2020, 1, 1)
    events = [
        (patient, day - pd.Timedelta(days=int(rng.integers(1, 60))), code, 1.0)
        for code, of in has.items()
        for patient in np.flatnonzero(of)
        for _ in range(2)
    ]
    events += [(patient, day - pd.Timedelta(days=1), "ALL", 1.0) for patient in range(N)]
    chance = 0.5 + 0.4 * has["RAISES//x"] - 0.4 * has["LOWERS: y"]
    y = (rng.random(N) < chance).astype(np.int32)
    return event_rows(events, [(i, day) for i in range(N)]), y


class DenseWindows(EventWindows):
    """The same columns as a dense matrix."""

    def transform(self, X: EventRows) -> np.ndarray:
        return super().transform(X).toarray()


def effects_of(model, seconds: float = 60.0, make=EventWindows):
    X, y = rows()
    windows = make(windows="30", aggregations="count_recency", levels="code")
    return column_effects(
        make_pipeline(windows, model).fit(X, y),
        X,
        np.array([0, 1]),
        lambda found: 1 - roc_auc_score(y, found.score[:, 1]),
        lambda found: found.score[:, 1],
        seed=0,
        seconds=seconds,
    )


@pytest.mark.parametrize(
    ("model", "make"),
    [
        (LINEAR, EventWindows),
        (LINEAR, DenseWindows),
        (DecisionTreeClassifier(max_depth=3, random_state=0), EventWindows),
    ],
)
def test_codes_with_an_effect_come_first_with_its_sign(model, make) -> None:
    found = effects_of(model, make=make)
    first, second = found.codes[:2]
    assert {first.code, second.code} == {"RAISES//x", "LOWERS: y"}
    assert second.strength > 0.05 > max(of.strength for of in found.codes[2:])
    sign = {of.code: np.sign(of.columns[0].direction) for of in (first, second)}
    assert sign == {"RAISES//x": 1, "LOWERS: y": -1}
    assert first.n_columns == 3  # counts of two windows, and recency
    assert {c.column.rpartition(": ")[0] for c in first.columns} == {first.code}
    sizes = [abs(c.direction) for c in first.columns]
    assert sizes == sorted(sizes, reverse=True)
    assert found.n_rows == N


def test_without_time_the_likeliest_code_is_measured_alone() -> None:
    found = effects_of(LINEAR, seconds=0.0)
    assert [of.code in {"RAISES//x", "LOWERS: y"} for of in found.codes] == [True]
    assert found.n_codes > 10


@pytest.mark.parametrize(
    ("column", "code"),
    [("a: b", "a: b"), ("a: b: mean, 30 days", "a: b"), ("c*: count", "c*"), ("age, years", "")],
)
def test_a_column_belongs_to_its_code_whatever_the_code_has_in_it(column, code) -> None:
    assert code_of_column(column, {"a: b", "c"}) == (code or column)
