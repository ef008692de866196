"""Figures of a model: AUROC with its interval, calibration, and effects of columns."""

import numpy as np
import pandas as pd
import pytest
from inputs import event_rows
from scipy.stats import rankdata
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.final import figures
from prefect_tune.tasks.final.figures import (
    auroc_with_interval,
    calibration,
    code_of_column,
    column_effects,
)


def clustered(n_groups: int, n_rows: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return rows of groups that share their class and most of their score, with ties."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), n_rows)
    y = rng.random(n_groups)[group] < 0.3
    score = y * 0.8 + rng.normal(size=n_groups)[group] + 0.1 * rng.normal(size=len(y))
    return y, score.round(1), 7 * group


def looped(y, score, group, n_draws: int, seed: int) -> list[float]:
    """Return the interval of a plain loop over bootstraps of groups."""
    rng, groups, areas = np.random.default_rng(seed), np.unique(group), []
    members = {g: np.flatnonzero(group == g) for g in groups}
    for _ in range(n_draws):
        rows = np.concatenate([members[g] for g in rng.choice(groups, size=len(groups))])
        if 0 < y[rows].sum() < len(rows):
            n, ranks = y[rows].sum(), rankdata(score[rows])
            areas.append((ranks[y[rows]].sum() - n * (n + 1) / 2) / n / (len(rows) - n))
    return np.percentile(areas, [2.5, 97.5]).tolist()


def test_interval_equals_a_plain_loop_over_groups(monkeypatch) -> None:
    monkeypatch.setattr(figures, "_DRAWS", 4_000)
    y, score, group = clustered(40, 4)
    found = auroc_with_interval(y, score, group, seed=1)
    assert found.value == pytest.approx(roc_auc_score(y, score))
    assert (found.n_draws, found.n_units) == (4_000, 40)
    assert [found.low, found.high] == pytest.approx(looped(y, score, group, 1_000, 2), abs=0.02)
    of_rows = auroc_with_interval(y, score, None, seed=1)
    by_row = looped(y, score, np.arange(len(y)), 1_000, 2)
    assert [of_rows.low, of_rows.high] == pytest.approx(by_row, abs=0.02)
    assert found.high - found.low > 1.5 * (of_rows.high - of_rows.low)
    monkeypatch.setattr(figures, "MOST_WEIGHTS", 10_000)  # in parts
    assert found == auroc_with_interval(y, score, group, seed=1)


@pytest.mark.parametrize("group", [[0, 0, 1, 2], [0, 1, 2, 2], [0, 0, 0, 0]])
def test_class_with_one_patient_has_an_auroc_without_interval(group) -> None:
    y, score = np.array([True, True, False, False]), np.array([0.2, 0.4, 0.1, 0.3])
    found = auroc_with_interval(y, score, np.array(group), 0)
    assert (found.value, found.low, found.high, found.n_draws) == (0.75, None, None, 0)
    assert auroc_with_interval(y, score, None, 0).low is not None
    assert auroc_with_interval(y | True, score, None, 0) is None


def test_calibration_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    probability = np.concatenate([rng.beta(1, 6, size=900), np.full(100, 0.1)])
    y = rng.random(1_000) < probability**0.8
    found = calibration(y, probability)
    observed, predicted = calibration_curve(y, probability, n_bins=10, strategy="quantile")
    assert [b.observed for b in found.bins] == pytest.approx(observed)
    assert [b.predicted for b in found.bins] == pytest.approx(predicted)
    sizes = np.array([b.n for b in found.bins])
    assert sizes.sum() == 1_000
    assert all(b.low <= b.observed <= b.high for b in found.bins)
    assert found.expected_error == pytest.approx(sizes @ abs(observed - predicted) / 1_000)
    assert found.brier == pytest.approx(brier_score_loss(y, probability))
    assert found.brier_of_share == pytest.approx(brier_score_loss(y, np.full(1_000, y.mean())))
    y = np.arange(50) % 2 == 0
    assert len(calibration(y, np.linspace(0, 1, 50)).bins) == 2  # few rows have few
    assert [b.n for b in calibration(y, np.full(50, 0.3)).bins] == [50]


N = 300
LINEAR = LogisticRegression(max_iter=500)


def rows() -> tuple[EventRows, np.ndarray]:
    """Return rows where RAISES makes the class likelier, LOWERS less likely, and ten are noise."""
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
def test_codes_with_an_effect_come_first_with_the_right_sign(model, make) -> None:
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


def test_without_time_only_the_most_likely_code_is_measured() -> None:
    found = effects_of(LINEAR, seconds=0.0)
    assert [of.code in {"RAISES//x", "LOWERS: y"} for of in found.codes] == [True]
    assert found.n_codes > 10


@pytest.mark.parametrize(
    ("column", "code"),
    [("a: b", "a: b"), ("a: b: mean, 30 days", "a: b"), ("c*: count", "c*"), ("age, years", "")],
)
def test_column_is_assigned_to_its_code_despite_special_characters(column, code) -> None:
    assert code_of_column(column, {"a: b", "c"}) == (code or column)
