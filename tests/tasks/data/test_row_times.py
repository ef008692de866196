"""Times of the rows of a table, in every notation found in files."""

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import stored, table, written

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.event_tables import labels_table
from prefect_tune.tasks.data.reading import read_source
from prefect_tune.tasks.data.schema import row_times, time_text
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.tables import frame_dataset

DATES = ["2020-01-02", "2021-03-04"]


def read(values: Any) -> tuple[Any, str]:
    return row_times(pd.Series(values, name="t"), "FILE")


@pytest.mark.parametrize(
    ("values", "how", "texts"),
    [
        (DATES, "times", DATES),
        (pd.to_datetime(DATES).tz_localize("UTC"), "times", DATES),
        ([date(2020, 1, 2), date(2021, 3, 4)], "times", DATES),
        (["2020-01-02T00:00:00Z", "2021-03-04 01:00+01:00"], "times", DATES),
        (["02.01.2020", "14.03.2021"], "times", ["2020-01-02", "2021-03-14"]),
        (["2019-05", "2021-06"], "times", ["2019-05-01", "2021-06-01"]),
        ([20200102, 20210304], "dates", DATES),
        ([1577923200, 1614816000], "s since 1970", DATES),
        ([1577923200000, 1614816000000.0], "ms since 1970", DATES),
        ([1577923200000000, 1614816000000000], "us since 1970", DATES),
        ([1577923200000000000, 1614816000000000000], "ns since 1970", DATES),
        ([2019, 2021], "years", ["2019-01-01", "2021-01-01"]),
        (pd.to_timedelta([1, 2], unit="D"), "durations", ["1970-01-02", "1970-01-03"]),
        ([1, 52], "numbers without a unit", ["1", "52"]),
    ],
)
def test_times_are_read_in_every_notation(values, how, texts) -> None:
    times, found = read(values)
    assert found == how
    assert [time_text(one) for one in times] == texts


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (["2020-01-01", "soon", "2020-02-01", "later"], "'later' in row 4"),
        (["01/02/2020", "03/04/2021"], "either order"),
        (["2020-01-01", None, ""], "2 of 3"),
        ([1.0, np.inf], "row 2"),
        ([[1], [2]], "not times"),
        (["2020-13-01", "2020-01-01"], "'2020-13-01'"),
    ],
)
def test_values_that_are_not_clear_times_are_refused_with_a_reason(values, named) -> None:
    with pytest.raises(BadInput, match=named, check=lambda e: (e.option, e.value) == ("time", "t")):
        read(values)


def visits(n: int = 60) -> pd.DataFrame:
    return table(n).assign(visit=pd.date_range("2020-01-01", periods=n).astype(str))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_time_column_is_not_a_feature_and_is_stored_with_the_data(tmp_path, suffix) -> None:
    path = written(visits(), tmp_path / f"visits.{suffix}")
    data = read_source(Source(path, target="target", time="visit"))
    assert list(data.X.columns) == ["a", "b", "c", "count", "color"]
    assert any("2020-01-01 to 2020-02-29" in note for note in data.notes)
    back = stored(data, tmp_path)
    assert back.digest() == data.digest()
    assert (back.times == data.times).all()
    without = read_source(Source(path, target="target", drop=("visit",)))
    assert without.digest() != data.digest()


def test_times_of_test_rows_and_of_training_rows_are_read_alike() -> None:
    source = Source("", target="target", time="visit")
    assert len(frame_dataset(source, visits(), visits(20)).times) == 80
    with pytest.raises(BadInput, check=lambda e: e.option == "time"):
        frame_dataset(source, visits(), visits(20).assign(visit=range(20)))


@pytest.mark.parametrize(
    ("changes", "options", "named"),
    [
        ({"visit": "2020-01-01"}, {}, "same time"),
        ({}, {"time": "vist"}, "'visit'"),
        ({}, {"drop": ("visit",)}, "--drop"),
        ({}, {"group": "visit"}, "--group"),
        ({}, {"time": "target"}, "--target"),
    ],
)
def test_unusable_time_column_is_refused(changes, options, named) -> None:
    source = Source(**{"data": "", "target": "target", "time": "visit", **options})
    with pytest.raises(BadInput, match=named):
        frame_dataset(source, visits().assign(**changes))


def test_prediction_times_are_the_times_of_rows_with_events() -> None:
    labels = pd.DataFrame({"patient": [1], "index_date": ["2020-01-01"], "label": [1]})
    for time in (None, "prediction_time", "index_date"):
        assert len(labels_table([labels], "LABELS", None, time)[0]) == 1
    with pytest.raises(BadInput, check=lambda e: (e.option, e.value) == ("time", "patient")):
        labels_table([labels], "LABELS", None, "patient")
