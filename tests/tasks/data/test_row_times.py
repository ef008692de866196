"""Times of the rows of a table, in any of the forms that files have."""

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import table

from prefect_tune.storage.artifacts import StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import import_dataset, load_dataset
from prefect_tune.tasks.data.event_tables import labels_table
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.schema import row_times, time_text
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import frame_dataset
from prefect_tune.tasks.problem import open_store

DATES = ["2020-01-02", "2021-03-04"]


def read(values: Any, name: str = "t") -> tuple[Any, str]:
    return row_times(pd.Series(values, name=name), "FILE")


@pytest.mark.parametrize(
    ("values", "how"),
    [
        (DATES, "times"),
        (pd.to_datetime(DATES), "times"),
        (pd.to_datetime(DATES).tz_localize("UTC"), "times"),
        (pd.Categorical(DATES), "times"),
        ([date(2020, 1, 2), date(2021, 3, 4)], "times"),
        (["2020-01-02T00:00:00Z", "2021-03-04 01:00+01:00"], "times"),
        (["02.01.2020", "04.03.2021"], "times"),
        ([20200102, 20210304], "dates"),
        (["20200102", "20210304"], "dates"),
        ([1577923200, 1614816000], "s since 1970"),
        ([1577923200000, 1614816000000.0], "ms since 1970"),
        ([1577923200000000, 1614816000000000], "us since 1970"),
        ([1577923200000000000, 1614816000000000000], "ns since 1970"),
    ],
)
def test_times_are_read_in_all_their_forms(values, how) -> None:
    times, found = read(values)
    assert found == how
    assert times.dtype == "datetime64[us]"
    assert [time_text(one) for one in times] == DATES


def test_years_months_durations_and_other_numbers_are_times_too() -> None:
    assert [time_text(t) for t in read([2019, 2021])[0]] == ["2019-01-01", "2021-01-01"]
    assert [time_text(t) for t in read(["2019-05", "2021-06"])[0]] == ["2019-05-01", "2021-06-01"]
    since = read(pd.to_timedelta([1, 2], unit="D"))[0]
    assert (since[1] - since[0]) == np.timedelta64(1, "D")
    weeks, how = read([1, 52])
    assert (weeks.tolist(), how) == ([1.0, 52.0], "numbers without a unit")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            ["2020-01-01", "soon", "2020-02-01", "later"],
            "'soon' .* 2, 'later' .* 4",
        ),
        (["x"] * 9, "9 of 9 .*row 3, ..."),
        (["01/02/2020", "03/04/2021"], "either order"),
        (["2020-01-01", None, ""], "2 of 3 .* 2;"),
        ([1.0, np.nan], "1 of 2 .* 2;"),
        ([1.0, np.inf], "1 of 2 .*row 2"),
        ([[1], [2]], "not times"),
        (["2020-13-01", "2020-01-01"], "'2020-13-01' in row 1"),
    ],
)
def test_values_that_are_no_times_are_named_with_their_rows(values, message) -> None:
    with pytest.raises(BadInput, match=message):
        read(values)


def visits(n: int = 60) -> pd.DataFrame:
    return table(n).assign(visit=pd.date_range("2020-01-01", periods=n).astype(str))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_of_times_is_no_feature_and_is_stored_with_the_data(tmp_path, suffix) -> None:
    path = tmp_path / f"visits.{suffix}"
    getattr(visits(), f"to_{suffix}")(path, index=False)
    data = read_source(Source(str(path), target="target", time="visit"))
    assert list(data.X.columns) == ["a", "b", "c", "count", "colour"]
    assert any("2020-01-01 to 2020-02-29" in note for note in data.notes)
    store = open_store(StoreAddress(str(tmp_path / "store")))
    back = load_dataset(store, import_dataset(data, store))
    assert back.digest() == data.digest()
    assert (back.times == data.times).all()
    without = read_source(Source(str(path), target="target", drop=("visit",)))
    assert without.digest() != data.digest()


def test_times_of_test_rows_are_read_like_those_of_training_rows() -> None:
    source = Source("", target="target", time="visit")
    data = frame_dataset(source, visits(), visits(20))
    assert data.times is not None
    assert len(data.times) == 80
    with pytest.raises(BadInput, match="dates in one"):
        frame_dataset(source, visits(), visits(20).assign(visit=range(20)))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"visit": "2020-01-01"}, {}, "same time"),
        ({}, {"time": "vist"}, "mean 'visit'"),
        ({}, {"drop": ("visit",)}, "once"),
        ({}, {"group": "visit"}, "once"),
        ({}, {"time": "target"}, "once"),
    ],
)
def test_a_column_that_cannot_be_the_time_is_refused(changes, options, message) -> None:
    source = Source(**{"data": "", "target": "target", "time": "visit", **options})
    with pytest.raises(BadInput, match=message):
        frame_dataset(source, visits().assign(**changes))


def test_rows_with_events_have_their_prediction_times() -> None:
    labels = pd.DataFrame({"patient": [1], "index_date": ["2020-01-01"], "label": [1]})
    for time in (None, "prediction_time", "index_date"):
        assert len(labels_table([labels], "LABELS", None, time)[0]) == 1
    with pytest.raises(BadInput, match="index_date"):
        labels_table([labels], "LABELS", None, "patient")
