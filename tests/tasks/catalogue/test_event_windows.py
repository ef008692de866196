"""Windows, recency, values, levels of codes and static events, compared with a slow oracle."""

from dataclasses import replace
from math import ceil, log
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import event_rows

from prefect_tune.tasks.catalogue import event_windows
from prefect_tune.tasks.catalogue.event_windows import AGGREGATIONS, SCALINGS, WINDOWS, EventWindows
from prefect_tune.tasks.data.events import EventRows

CODES = ("ICD10//E11.9", "ICD10//E11.2", "ICD10//E11", "LAB//glucose", "LAB//na/x", "X")
OF_CODES = {code: {code} for code in CODES}
OF_SEVERAL = {"ICD10//E11*": {*CODES[:3]}, "LAB*": {*CODES[3:5]}}
NAMES = {
    "code": OF_CODES,
    "both": OF_CODES | OF_SEVERAL,
    "prefixes": OF_SEVERAL | {"LAB//na*": {"LAB//na/x"}, "X*": {"X"}},
}
"""The codes that each column stands for, by level."""


def random_rows(n_patients: int = 10, seed: int = 0) -> EventRows:
    """Return two rows per patient with zero, negative or missing values, equal times and births."""
    rng = np.random.default_rng(seed)
    end = pd.Timestamp(2020, 6, 1, 12)
    events, rows = [], []
    for patient in range(n_patients):
        if patient % 5:
            birth = end - pd.Timedelta(days=9000 + 100 * patient)
            events.append((patient, birth, "MEDS_BIRTH", np.nan))
        events.append((patient, pd.NaT, f"SEX//{patient % 2}", np.nan))
        for _ in range(rng.integers(8, 30)):
            back = rng.choice([0.0, 0.5, 3, 7, 29.9, 30, 31, 90, 200, 365, 400, 1095, 1500])
            code = rng.choice(CODES)
            value = rng.choice([np.nan, 0.0, -2.5, 1.0, 7.25, 1e6])
            value = 1.0 if code == "X" else value  # of no use: never another
            events.append((patient, end - pd.Timedelta(days=back), code, value))
        events.append((patient, end + pd.Timedelta(days=1), "LATER", 1.0))
        rows += [(patient, end), (patient, end - pd.Timedelta(days=25))]
    return event_rows(events, rows)


def events_of_rows(X: EventRows) -> list[pd.DataFrame]:
    """Return the events that each row may see."""
    made = []
    for row in X.rows.itertuples(index=False):
        mine = X.events[X.events["subject_id"] == row.subject_id].astype({"code": str})
        mine = mine[mine["time"].isna() | (mine["time"] <= row.prediction_time)]
        made.append(mine.assign(days=(row.prediction_time - mine["time"]) / pd.Timedelta(days=1)))
    return made


def aggregate(events: pd.DataFrame, aggregation: str) -> float:
    """Return the value of a cell from its events in order of time."""
    values = events[events["value"].notna()]
    if aggregation in {"has", "count", "recency"}:
        values = events
    if values.empty:
        return 0.0
    of_events = {"has": 1.0, "count": len(values), "values": len(values)}
    if aggregation in of_events:
        return of_events[aggregation]
    if aggregation in {"recency", "last"}:
        last = values.iloc[-1]
        return last["value"] if aggregation == "last" else 1 / (1 + last["days"])
    if aggregation != "slope":
        return getattr(values["value"], aggregation)()
    if values["days"].min() == values["days"].max():
        return 0.0
    return -np.polyfit(values["days"], values["value"], 1)[0]


def oracle(train: EventRows, X: EventRows, made: EventWindows) -> dict[str, list[float]]:
    """Return columns by name, with everything learned from the training rows."""
    seen = pd.concat(events_of_rows(train)).drop(columns="days")
    seen = seen[~seen.index.duplicated()]  # each event once, however many rows see it
    is_birth = seen["code"].str.startswith("MEDS_BIRTH")
    n_patients = seen["subject_id"].nunique()
    rows = events_of_rows(X)
    columns = columns_of_rows(events_of_rows(train), rows, made)
    rows = [frame[~frame["code"].str.startswith("MEDS_BIRTH")] for frame in rows]
    least = max(2, ceil(made.min_share * n_patients))
    for code, facts in seen[seen["time"].isna()].groupby("code"):
        if facts["subject_id"].nunique() >= 2:
            columns[f"{code}: is"] = [float((frame["code"] == code).any()) for frame in rows]
    timed = seen[seen["time"].notna() & ~is_birth]
    rows = [frame[frame["time"].notna()] for frame in rows]
    for name, members in NAMES[made.levels].items():
        of_name = timed[timed["code"].isin(members)]
        frequency = of_name["subject_id"].nunique()
        if frequency < least:
            continue
        mine = [frame[frame["code"].isin(members)] for frame in rows]
        rarity = log((1 + n_patients) / (1 + frequency)) + 1
        for window in WINDOWS[made.windows]:
            for aggregation in aggregations_of(made, window, of_name["value"]):
                cells = np.array([aggregate(since(frame, window), aggregation) for frame in mine])
                if aggregation == "count" and made.scaling == "log1p":
                    cells = np.log(1 + cells)
                elif aggregation == "count" and made.scaling == "tfidf":
                    totals = np.array([len(since(frame, window)) for frame in rows])
                    cells = cells / np.maximum(totals, 1) * rarity
                columns[f"{name}: {aggregation}{ending(window)}"] = cells
    return columns


def columns_of_rows(
    train: list[pd.DataFrame], rows: list[pd.DataFrame], made: EventWindows
) -> dict[str, list[float]]:
    """Return the columns of age, length of history and event counts."""
    years, ages = [age_of(frame) for frame in train], [age_of(frame) for frame in rows]
    columns = {}
    if not np.isnan(years).all():
        columns["age, years"] = [np.nanmedian(years) if np.isnan(age) else age for age in ages]
    timed = [f[f["time"].notna() & ~f["code"].str.startswith("MEDS_BIRTH")] for f in rows]
    columns["history, days"] = [frame["days"].max() for frame in timed]
    for window in WINDOWS[made.windows]:
        inside = [since(frame, window) for frame in timed]
        columns[f"events{ending(window)}"] = [len(frame) for frame in inside]
        columns[f"days with events{ending(window)}"] = [f["time"].dt.date.nunique() for f in inside]
    return columns


def aggregations_of(made: EventWindows, window: int | None, values: pd.Series) -> list[str]:
    """Return the aggregations that make columns of a code, given its values in training rows."""
    chosen = list(AGGREGATIONS[made.aggregations])
    if made.scaling == "binary":
        chosen = ["has", *(name for name in chosen if name not in {"has", "count"})]
    of_values = [name for name in chosen if name not in {"has", "count", "recency"}]
    if values.min() == values.max():
        chosen = [name for name in chosen if name not in of_values]
    elif of_values and values.isna().any():
        chosen.append("values")
    return [name for name in chosen if not (window and name in {"recency", "last"})]


def since(events: pd.DataFrame, window: int | None) -> pd.DataFrame:
    return events if window is None else events[events["days"] <= window]


def ending(window: int | None) -> str:
    return "" if window is None else f", {window} days"


def age_of(frame: pd.DataFrame) -> float:
    births = frame[frame["code"].str.startswith("MEDS_BIRTH")]
    return float(births["days"].iloc[0] / 365.25) if len(births) else np.nan


def as_frame(made: EventWindows, X: EventRows) -> pd.DataFrame:
    matrix = made.transform(X)
    assert matrix.dtype == np.float32
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    assert (matrix.data != 0).all()
    return pd.DataFrame(matrix.toarray(), columns=made.get_feature_names_out())


EVERY = {"windows": "7_30_90_365_1095", "aggregations": "every", "levels": "both"}
CASES: list[dict[str, Any]] = [
    EVERY,
    {"windows": "30_365", "aggregations": "every", "levels": "prefixes"},
    {"aggregations": "every", "levels": "both", "min_share": 0.9},
    *({"aggregations": "every", "levels": "both", "scaling": name} for name in SCALINGS[1:]),
]
MORE: list[dict[str, Any]] = [{"windows": "30", "aggregations": name} for name in AGGREGATIONS]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [*CASES, *(pytest.param(more, marks=pytest.mark.full) for more in MORE)]
)
def test_columns_equal_the_oracle(arguments) -> None:
    X = random_rows()
    train, held_out = X.take(np.arange(12)), X.take(np.arange(12, 20))
    made = EventWindows(**arguments).fit(train)
    for rows in (train, held_out):
        found, expected = as_frame(made, rows), pd.DataFrame(oracle(train, rows, made))
        assert found.columns.is_unique
        assert sorted(found.columns) == sorted(expected.columns)
        np.testing.assert_allclose(found, expected[found.columns], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("levels", ["both", "all"])
def test_blocks_are_the_same_however_rows_are_split_into_pieces(monkeypatch, levels) -> None:
    X = random_rows()
    if levels == "all":
        named = {"code": ["ICD10//E11", "ICD10//E11.2", "X", "P"], "description": ""}
        table = pd.DataFrame({**named, "parents": [["P"], ["ICD10//E11", "P"], ["P"], []]})
        X = replace(X, code_table=table)
    made = []
    for size in (1 << 21, 7):
        monkeypatch.setattr(event_windows, "NAMES_OF_PIECE", size)
        rows = replace(X, of_events={})
        made.append(as_frame(EventWindows(**{**EVERY, "levels": levels}).fit(rows), rows))
    pd.testing.assert_frame_equal(*made, check_exact=True)


DAY = "2020-12-01"


def small(*events: tuple[int, str | None, str, float]) -> EventRows:
    """Return events of two patients at days of 2020, both predicted at the end of the year."""
    return event_rows(events, [(i, pd.Timestamp(2020, 12, 31)) for i in range(2)])


def of_both(*codes: str) -> EventRows:
    """Return two patients with one event of each code on one day, without a value."""
    return small(*((i, DAY, code, np.nan) for i in range(2) for code in codes))


def test_unseen_codes_are_ignored_but_count_for_a_known_group_of_codes() -> None:
    made = EventWindows(aggregations="count", levels="both").fit(of_both("A//1", "A//2", "Z"))
    found = as_frame(made, small((0, DAY, "A//9", 5), (1, DAY, "B", 6)))
    assert not found[["A//1: count", "A//2: count"]].to_numpy().any()
    assert list(found["A*: count"]) == [1, 0]
    assert not [name for name in found if "9" in name or "B" in name]
    without = as_frame(made, small((0, DAY, "Z", np.nan), (1, DAY, "new", np.nan)))
    assert list(without["Z: count"]) == [1, 0]
    assert not without["A*: count"].any()  # though no row has a code of that level


def test_rows_without_timed_events_keep_static_events() -> None:
    facts = ((i, None, "SEX//f", np.nan) for i in range(2))
    X = small((0, DAY, "A", 1), (1, DAY, "A", 2), *facts)
    made = EventWindows("30", "every").fit(X)
    bare = EventRows(X.events, X.rows, X.start, X.start + 1)
    found = as_frame(made, bare)
    assert found["SEX//f: is"].all()
    assert not found.drop(columns="SEX//f: is").to_numpy().any()


def test_equal_times_give_slope_zero_and_huge_values_do_not_overflow() -> None:
    far = ("2020-12-01 00:00:00", "2020-12-03 00:00:00")
    pairs = enumerate([("2020-12-01 10:00:00", "2020-12-01 10:00:01"), far])
    X = small(
        *((i, time, "A", float(n)) for i, pair in pairs for n, time in enumerate(pair)),
        *((i, day, "B", n * 1e300) for i in range(2) for n, day in enumerate(far)),
    )
    found = as_frame(EventWindows(aggregations="every", levels="code").fit(X), X)
    assert list(found["A: slope"]) == [0.0, 0.5]
    assert np.isfinite((found["B: sum"].to_numpy(np.float32) ** 2).sum())


def test_text_codes_are_split_only_at_double_slashes() -> None:
    X = of_both("LAB//Sodium 0.9% / ml", "LAB//Sodium 0.4% / ml", "ICD//E11.9", "ICD//E11.2")
    found = as_frame(EventWindows(levels="prefixes").fit(X), X)
    named = {name.split("*")[0] for name in found if "*: count" in name}
    assert named == {"LAB", "ICD//E11"}


def test_codes_that_merely_begin_like_a_birth_code_are_ordinary_events() -> None:
    X = of_both("MEDS_BIRTHPLACE")
    found = as_frame(EventWindows(levels="code").fit(X), X)
    assert list(found["MEDS_BIRTHPLACE: count"]) == [1, 1]
    assert "age, years" not in found


def with_parents(X: EventRows, parents: dict[str, list[str]]) -> EventRows:
    frame = pd.DataFrame({"code": list(parents), "description": "", "parents": parents.values()})
    return EventRows.build(X.events.astype({"code": str}), X.rows, frame)


def test_parent_code_aggregates_all_descendant_codes() -> None:
    """Some codes have no parent, others two; the number of parents equals the number of codes."""
    events = of_both("A", "B", "C", "P")
    X = with_parents(events, {"A": [], "B": ["P", "Q"], "C": ["P", "Q"], "P": ["Q"], "Q": []})
    found = as_frame(EventWindows(aggregations="count", levels="parents").fit(X), X)
    named = {name for name in found if "below" in name}
    assert named == {"P and below: count"}  # Q stands for the same codes
    assert list(found["P and below: count"]) == [3, 3]
    other = with_parents(X, {"A": [], "B": ["P"], "C": ["Q"], "P": [], "Q": []})
    made = EventWindows(aggregations="count", levels="all").fit(other)
    assert list(as_frame(made, X)["P and below: count"]) == [2, 2]  # by the parents learned
    parents = {"A": [], "B": ["P", "Q"], "C": ["P"], "D": ["Q"], "P": [], "Q": []}
    X = with_parents(of_both("A", "A", "A", "B", "C", "D"), parents)
    found = as_frame(EventWindows(aggregations="count", levels="parents").fit(X), X)
    for name in ("P", "Q"):
        assert list(found[f"{name} and below: count"]) == [2, 2]
