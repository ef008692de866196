"""Dates and times of events: nothing of the day of a label may be seen by it."""

from datetime import date

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs import codes_of

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.timestamps import Times, utc_times

REFUSED = (
    "2024/05/01",
    "2024.05.01",
    "2024 05 01",
    "2024-5-1",
    "2024-05",
    "2024-05-01T",
    "2024-05-01Z",
    "2024-05-01+02:00",
    "2024-13-01",
    "01.05.2024",
    "",
)


def column(*values) -> pd.Series:
    return pd.Series(values, name="time")


def written(folder, times, *, suffix="parquet") -> Source:
    """Two patients with an event before the day of their label and one on it."""
    log = pd.DataFrame(
        {"patient": [1, 1, 2, 2], "time": list(times) * 2, "code": ["before", "leak"] * 2}
    )
    path = folder / f"log.{suffix}"
    log.to_csv(path, index=False) if suffix == "csv" else log.to_parquet(path)
    labels = pd.DataFrame({"patient": [1, 2], "date": ["2024-05-02"] * 2, "label": [0, 1]})
    labels.to_csv(folder / "labels.csv", index=False)
    return Source(str(path), labels=str(folder / "labels.csv"))


@pytest.mark.parametrize("text", REFUSED)
def test_other_spellings_of_dates_are_refused(text) -> None:
    with pytest.raises(BadInput, match=r"1 times that do not parse .* ISO 8601"):
        utc_times(column("2024-05-01", text), "log", at_end_of_day=True)


@pytest.mark.parametrize("text", ["2024-05-01", "20240501", " 2024-05-01", "2024-05-01 "])
def test_a_date_without_a_time_is_the_end_of_its_day(text) -> None:
    [time] = utc_times(column(text), "log", at_end_of_day=True)
    assert time == pd.Timestamp("2024-05-01T23:59:59.999999")
    [start] = utc_times(column(text), "log", at_end_of_day=False)
    assert start == pd.Timestamp("2024-05-01")


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-05-01T00:00:00", "2024-05-01T00:00:00"),
        ("2024-05-01 10:11", "2024-05-01T10:11:00"),
        ("20240501T101112Z", "2024-05-01T10:11:12"),
        ("2024-05-01T10:11:12.5+02:00", "2024-05-01T08:11:12.5"),
        ("2024-05-01 10:11:12 +00:00", "2024-05-01T10:11:12"),
    ],
)
def test_a_time_is_taken_as_it_is(text, utc) -> None:
    assert utc_times(column(text), "log", at_end_of_day=True)[0] == pd.Timestamp(utc)


@given(st.dates(date(1900, 1, 1), date(2200, 1, 1)), st.sampled_from(["%Y-%m-%d", "%Y%m%d"]))
def test_any_date_ends_before_the_next_one_starts(day, pattern) -> None:
    text = column(day.strftime(pattern))
    end = utc_times(text, "log", at_end_of_day=True)[0]
    assert end + pd.Timedelta(1, "us") == pd.Timestamp(day) + pd.Timedelta(days=1)


@pytest.mark.parametrize(
    "times",
    [
        ("2024-05-01", "2024-05-02"),
        (20240501, 20240502),
        (" 2024-05-01", " 2024-05-02"),
        ("2024-05-01T00:00:00", "2024-05-02T00:00:00"),
    ],
)
def test_an_event_of_the_day_of_its_label_is_not_seen(tmp_path, times) -> None:
    dataset = read_source(written(tmp_path, times, suffix="csv"))
    assert [codes_of(dataset.X, row) for row in (0, 1)] == [["before"], ["before"]]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_that_are_all_at_midnight_are_dates_which_is_said(tmp_path, zone, caplog) -> None:
    times = pd.to_datetime(["2024-05-01", "2024-05-02"]).tz_localize(zone)
    source = written(tmp_path, times)
    dataset = read_source(source)
    assert [codes_of(dataset.X, row) for row in (0, 1)] == [["before"], ["before"]]
    [note] = dataset.notes
    assert "are at midnight, so each counts as the end of its day" in note
    read_features(source.data, source.labels, dataset)
    assert note in caplog.text


def test_dates_of_parquet_are_dates_and_need_no_word(tmp_path) -> None:
    dataset = read_source(written(tmp_path, [date(2024, 5, 1), date(2024, 5, 2)]))
    assert codes_of(dataset.X, 0) == ["before"]
    assert dataset.notes == ()


def test_midnight_among_other_times_is_midnight(tmp_path) -> None:
    source = written(tmp_path, pd.to_datetime(["2024-05-01T10:00", "2024-05-02T00:00"]))
    dataset = read_source(source)
    assert codes_of(dataset.X, 0) == ["before", "leak"]
    assert dataset.notes == ()


@pytest.mark.parametrize("has_times", [False, True])
def test_shards_of_meds_are_all_dates_or_none(tmp_path, has_times) -> None:
    """A shard whose few times are at midnight by chance is no shard of dates."""
    clock = "T08:00" if has_times else ""
    (tmp_path / "data").mkdir()
    for patient, day in ((1, f"2024-05-01{clock}"), (2, "2024-05-01")):
        pd.DataFrame(
            {
                "subject_id": patient,
                "time": pd.to_datetime([None, day, "2024-05-02"], format="ISO8601"),
                "code": ["SEX", "before", "on the day"],
            }
        ).to_parquet(tmp_path / "data" / f"{patient}.parquet")
    labels = tmp_path / "labels.csv"
    labels.write_text("subject_id,prediction_time,label\n1,2024-05-02,0\n2,2024-05-02,1\n")
    dataset = read_source(Source(str(tmp_path), labels=str(labels)))
    assert dataset.format == "meds"
    seen = [codes_of(dataset.X, row) for row in (0, 1)]
    assert seen == [["SEX", "before"] + ["on the day"] * has_times] * 2


def test_midnight_is_that_of_where_it_was_noted() -> None:
    local = pd.to_datetime(["2024-05-01T00:00", "2024-05-01T02:00"]).tz_localize("Europe/Berlin")
    assert Times.of(pd.Series(local, name="time"), "log").is_midnight.tolist() == [True, False]
    texts = column("2024-05-01T00:00:00+02:00", "2024-05-01T02:00:00+02:00")
    assert Times.of(texts, "log").is_midnight.tolist() == [True, False]


def test_events_that_are_not_there_are_said_to_be_missing_before_labels_are_asked_for(
    tmp_path,
) -> None:
    dataset = read_source(written(tmp_path, [date(2024, 5, 1), date(2024, 5, 2)]))
    with pytest.raises(BadInput, match="no file or folder"):
        read_features(str(tmp_path / "missing.csv"), None, dataset)
