"""Figures of a model: intervals, curves, calibration, errors, and effects of columns."""

import numpy as np
import pandas as pd
import pytest
from inputs import event_rows
from scipy.stats import rankdata
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier

from prefect_tune.tasks.catalogue.event_windows import EventWindows
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.row_reader import LearnedColumn
from prefect_tune.tasks.final import quality
from prefect_tune.tasks.final.figures import (
    ModelInput,
    code_of_column,
    column_effects,
    dependence,
    described_columns,
    named_classes,
)
from prefect_tune.tasks.final.quality import (
    calibration,
    class_curve,
    errors_of_bins,
    loss_with_interval,
    residual_counts,
)
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.objective.predictions import Predictions


def clustered(n_groups: int, n_rows: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return classes, scores with ties, and groups; a group has one class and similar scores."""
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


def interval(y, score, group, seed: int = 1, name: str = "auroc"):
    y, scores = y.astype(np.int32), np.column_stack([-score, score])
    found = Predictions((score > 0.5).astype(np.int32), scores)
    return loss_with_interval(metric_named(name), y, found, group, n_classes=2, seed=seed)


def test_interval_equals_a_plain_loop_over_groups(monkeypatch) -> None:
    monkeypatch.setattr(quality, "_DRAWS", 4_000)
    y, score, group = clustered(40, 4)
    found = interval(y, score, group)
    assert 1 - found.loss == pytest.approx(roc_auc_score(y, score))
    assert (found.n_draws, found.n_units) == (4_000, 40)
    ends = [1 - found.high, 1 - found.low]
    assert ends == pytest.approx(looped(y, score, group, 1_000, 2), abs=0.02)
    of_rows = interval(y, score, None)
    by_row = looped(y, score, np.arange(len(y)), 1_000, 2)
    assert [1 - of_rows.high, 1 - of_rows.low] == pytest.approx(by_row, abs=0.02)
    assert found.high - found.low > 1.5 * (of_rows.high - of_rows.low)
    monkeypatch.setattr(quality, "MOST_WEIGHTS", 10_000)  # in parts
    again = interval(y, score, group)
    assert [again.low, again.high] == pytest.approx([found.low, found.high])


@pytest.mark.parametrize("group", [[0, 0, 1, 2], [0, 1, 2, 2], [0, 0, 0, 0]])
def test_class_with_a_single_patient_has_no_interval(group) -> None:
    y, score = np.array([True, True, False, False]), np.array([0.2, 0.4, 0.1, 0.3])
    found = interval(y, score, np.array(group))
    assert (found.loss, found.low, found.high, found.n_draws) == (0.25, None, None, 0)
    assert interval(y, score, None).low is not None
    assert interval(y | True, score, None) is None


def test_error_of_zero_has_an_interval_with_a_positive_upper_end() -> None:
    y = np.arange(36) % 2 == 0
    found = interval(y, y.astype(float), None, name="error")
    assert (found.loss, found.low, found.n_draws) == (0.0, pytest.approx(0.0), 0)
    assert found.high == pytest.approx(9.64, abs=0.01)


def test_calibration_equals_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    probability = np.concatenate([rng.beta(1, 6, size=900), np.full(100, 0.1)])
    y = rng.random(1_000) < probability**0.8
    found = calibration(y, probability)
    observed, predicted = calibration_curve(y, probability, n_bins=10, strategy="quantile")
    assert found["observed"].tolist() == pytest.approx(observed)
    assert found["predicted"].tolist() == pytest.approx(predicted)
    assert found["n"].sum() == 1_000
    assert (found["low"] <= found["observed"]).all()
    assert (found["observed"] <= found["high"]).all()
    y = np.arange(50) % 2 == 0
    assert len(calibration(y, np.linspace(0, 1, 50))) == 2  # few rows have few
    assert calibration(y, np.full(50, 0.3))["n"].tolist() == [50]


def test_curve_counts_rows_at_each_threshold() -> None:
    y, score, _ = clustered(40, 4)
    curve = class_curve(y, score)
    assert curve["threshold"].is_monotonic_increasing
    assert {0.0, 0.5} <= set(curve["threshold"])
    for row in curve.itertuples():
        is_above = score >= row.threshold
        assert (row.found, row.false) == ((is_above & y).sum(), (is_above & ~y).sum())
        assert row.recall == pytest.approx(is_above[y].mean())
    assert (curve["recall"].iloc[0], curve["recall"].iloc[-1]) == (1.0, 0.0)


def test_errors_by_size_are_computed_in_bins_of_equal_counts() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    bins = errors_of_bins(y, y + np.sign(y), y)
    assert bins["n"].tolist() == [40] * 10
    assert bins["error"].tolist() == pytest.approx([1.0] * 10)
    assert bins["actual"].is_monotonic_increasing
    assert ((bins["low"] < bins["actual"]) & (bins["actual"] < bins["high"])).all()
    assert residual_counts(y, y * 0)["rows"].sum() == pytest.approx(396, abs=2)


def table() -> tuple[pd.DataFrame, list[LearnedColumn]]:
    """Numbers, a rare and a frequent category, and a date that becomes several features."""
    rng = np.random.default_rng(0)
    place = pd.Categorical(rng.choice(["north", "south", "moon"], N, p=[0.5, 0.48, 0.02]))
    columns = [LearnedColumn("age", "number"), LearnedColumn("place", "category")]
    columns.append(LearnedColumn("day", "date"))
    days = {name: rng.integers(16_000, 18_000, N) * 1.0 for name in columns[-1].features}
    age = np.where(np.arange(N) % 10 == 0, np.nan, rng.normal(50, 10, N))
    return pd.DataFrame({"age": age, "place": place, **days}), columns


class Likes:
    """A model of age and place."""

    classes_ = np.array([0, 1])

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        score = X["age"].fillna(50) / 200 + 0.5 * (X["place"] == "south")
        return np.column_stack([1 - score, score])

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return self.predict_proba(X).argmax(axis=1)


def test_columns_of_a_table_have_effects_and_dependence() -> None:
    X, columns = table()
    model, classes = Likes(), np.array([0, 1])
    y = model.predict(X)
    given = ModelInput.of_table(model, X, columns)
    judge = classes, lambda found: found.score[:, [1]]
    effects, n = column_effects(given, *judge, lambda found: np.mean(found.label != y), seed=0)
    assert n == 3
    assert effects["code"].tolist()[:2] == ["place", "age"]
    assert effects.groupby("code", sort=False).size().tolist() == [1, 1, 6]
    assert (effects["strength"] > 0).tolist()[:1] == [True]
    direction = effects.drop_duplicates("code").set_index("code")["direction"]
    assert direction["age"] > 0.1
    assert np.isnan(direction["place"])
    place = dependence(given, columns[1], *judge, ["yes"])
    assert set(place["value"]) == {"north", "south"}  # not the rare one
    by_place = place.set_index("value")["score"]
    assert by_place["south"] - by_place["north"] == pytest.approx(0.5)
    age = dependence(given, columns[0], *judge, ["yes"])
    assert age["score"].is_monotonic_increasing
    day = dependence(given, columns[2], *judge, ["yes"])
    assert day["score"].std() == pytest.approx(0.0)
    assert set(day["value"]) <= set(X[columns[2].features[0]])  # rounded days are other dates
    assert day["value"].is_unique


def test_rare_classes_are_named_only_if_there_are_just_two_classes() -> None:
    y = np.repeat([0, 1, 2], [10, 9, 30])
    assert named_classes(y, 3, fewest=10).tolist() == [2, 0]
    assert named_classes(y, 3, fewest=1).tolist() == [2, 0, 1]
    assert named_classes(y[:19], 2, fewest=10).tolist() == [0, 1]


def test_rare_values_are_not_named() -> None:
    X, columns = table()
    found = described_columns(X, columns, 10).set_index("column")
    assert found.loc["place", "values"].endswith("1 rare")
    assert "moon" not in found.loc["place", "values"]
    assert found.loc["age", "missing"] == pytest.approx(0.1)
    low, high = map(float, found.loc["age", "values"].split(" to "))
    assert X["age"].min() < low < high < X["age"].max()
    assert found.loc["day", "values"].startswith("20")
    named = described_columns(X, columns, 1).set_index("column")
    assert "moon" in named.loc["place", "values"]
    year = pd.DataFrame({"age": np.arange(2_000.0, 2_025.0).repeat(10)})
    assert described_columns(year, columns[:1], 10)["values"].tolist() == ["2000 to 2024"]
    few = described_columns(X.head(15), columns, 10).set_index("column")
    assert few.loc["age", "values"] == ""


N = 300
LINEAR = LogisticRegression(max_iter=500)


def rows() -> tuple[EventRows, np.ndarray]:
    """Return rows with code RAISES, which raises the risk, code LOWERS, and ten noise codes."""
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
        ModelInput.of_events(make_pipeline(windows, model).fit(X, y), X),
        np.array([0, 1]),
        lambda found: found.score[:, [1]],
        lambda found: 1 - roc_auc_score(y, found.score[:, 1]),
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
    found, _ = effects_of(model, make=make)
    codes = found.groupby("code", sort=False).first()
    assert set(codes.index[:2]) == {"RAISES//x", "LOWERS: y"}
    assert codes["strength"].iloc[1] > 0.05 > codes["strength"].iloc[2:].max()
    sign = np.sign(codes["direction"].iloc[:2]).to_dict()
    assert sign == {"RAISES//x": 1, "LOWERS: y": -1}
    first = found[found["code"] == codes.index[0]]
    assert len(first) == 3  # counts of two windows, and recency
    assert set(first["column"].str.rpartition(": ")[0]) == set(first["code"])
    assert first["direction"].abs().is_monotonic_decreasing


def test_without_time_only_the_most_likely_code_is_measured() -> None:
    found, n_codes = effects_of(LINEAR, seconds=0.0)
    assert len(set(found["code"])) == 1
    assert found["code"].iloc[0] in {"RAISES//x", "LOWERS: y"}
    assert n_codes > 10


@pytest.mark.parametrize(
    ("column", "code"),
    [("a: b", "a: b"), ("a: b: mean, 30 days", "a: b"), ("c*: count", "c*"), ("age, years", "")],
)
def test_columns_are_assigned_to_codes_with_special_characters(column, code) -> None:
    assert code_of_column(column, {"a: b", "c"}) == (code or column)
