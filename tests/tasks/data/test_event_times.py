"""Times of events and labels: a date is the end of the day, and midnight may be a date."""

from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from inputs import codes_of, written

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.schema import Times, utc_times
from prefect_tune.tasks.data.source import Source


def column(*values: object) -> pd.Series:
    return pd.Series(values, name="time")


def test_dates_not_written_as_year_month_and_day_with_hyphens_are_refused() -> None:
    of_day = ("2024/05/01", "2024.05.01", "2024 05 01", "2024-5-1", "01.05.2024", "2024-13-01")
    for text in (*of_day, "2024-05", "2024-05-01T", "2024-05-01Z", "2024-05-01+02:00", ""):
        with pytest.raises(BadInput, match="'time'"):
            utc_times(column("2024-05-01", text), "log", at_end_of_day=True)


END = "2024-05-01T23:59:59.999999"


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-05-01", END),
        ("20240501", END),
        (" 2024-05-01 ", END),
        ("1900-02-28", "1900-02-28T23:59:59.999999"),
        ("2024-05-01T00:00:00", "2024-05-01T00:00:00"),
        ("2024-05-01 10:11", "2024-05-01T10:11:00"),
        ("20240501T101112Z", "2024-05-01T10:11:12"),
        ("2024-05-01T10:11:12.5+02:00", "2024-05-01T08:11:12.5"),
        ("2024-05-01 10:11:12 +00:00", "2024-05-01T10:11:12"),
    ],
)
def test_date_means_the_end_of_the_day_and_a_time_is_exact(text, utc) -> None:
    [time] = utc_times(column(text), "log", at_end_of_day=True)
    assert time == pd.Timestamp(utc)
    [start] = utc_times(column(text), "log", at_end_of_day=False)
    assert start == (time.normalize() if "999999" in utc else time)


def written_log(folder: Path, times: object, suffix: str = "parquet") -> Source:
    """Write two patients, each with an event on the day of the label and an event before."""
    log = pd.DataFrame(
        {"patient": [1, 1, 2, 2], "time": list(times) * 2, "code": ["before", "leak"] * 2}
    )
    labels = pd.DataFrame({"patient": [1, 2], "date": ["2024-05-02"] * 2, "label": [0, 1]})
    path = written(log, folder / f"log.{suffix}")
    return Source(path, labels=written(labels, folder / "labels.csv"))


DAYS = ("2024-05-01", "2024-05-02")
MIDNIGHTS = tuple(f"{day}T00:00:00" for day in DAYS)


@pytest.mark.parametrize(
    ("times", "suffix", "is_noted"),
    [
        (DAYS, "csv", False),
        ((20240501, 20240502), "csv", False),
        (MIDNIGHTS, "csv", True),
        ((date(2024, 5, 1), date(2024, 5, 2)), "parquet", False),
        *((pd.to_datetime(DAYS).tz_localize(z), "parquet", True)
          for z in (None, "UTC", "Europe/Berlin")),
    ],
)  # fmt: skip
def test_event_on_the_day_of_the_label_is_not_visible(tmp_path, times, suffix, is_noted) -> None:
    """If all times are at midnight, they count as dates, and a note says so."""
    dataset = read_source(written_log(tmp_path, times, suffix))
    assert [codes_of(dataset.X, row) for row in (0, 1)] == [["before"], ["before"]]
    assert any("midnight" in note for note in dataset.notes) == is_noted


def test_midnight_among_other_times_is_exact(tmp_path) -> None:
    times = pd.to_datetime(["2024-05-01T10:00", "2024-05-02T00:00"])
    dataset = read_source(written_log(tmp_path, times))
    assert codes_of(dataset.X, 0) == ["before", "leak"]
    assert not any("midnight" in note for note in dataset.notes)


@pytest.mark.parametrize("have_clock", [False, True])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_midnight_in_new_rows_has_the_same_meaning_as_in_training(
    tmp_path, have_clock, zone
) -> None:
    """New rows keep the meaning learned in training, even if all their times are at midnight."""
    times = pd.to_datetime(DAYS).tz_localize(zone)
    clock = times + pd.Timedelta("9h")
    trained = read_source(written_log(tmp_path, clock if have_clock else times))
    rows = pd.DataFrame({"patient": [1], "prediction_time": [times[1] + pd.Timedelta("8h")]})
    for other in ([], [(3, clock[0], "other")]):
        log = [(1, times[0], "before"), (1, times[1], "at midnight"), *other]
        new = pd.DataFrame(log, columns=["patient", "time", "code"])
        paths = (written(new, tmp_path / "new.parquet"), written(rows, tmp_path / "rows.parquet"))
        seen = ["before", "at midnight"] if have_clock else ["before"]
        assert codes_of(read_features(*paths, trained), 0) == seen


@pytest.mark.parametrize("has_times", [False, True])
def test_meds_shards_are_all_dates_or_none(tmp_path, has_times) -> None:
    """A shard whose few times are at midnight by chance is not a shard of dates."""
    (tmp_path / "data").mkdir()
    for patient, clock in ((1, "T08:00" if has_times else ""), (2, "")):
        times = [None, f"2024-05-01{clock}", "2024-05-02"]
        log = pd.DataFrame({"subject_id": patient, "code": ["SEX", "before", "on the day"]})
        log["time"] = pd.to_datetime(times, format="ISO8601")
        log.to_parquet(tmp_path / "data" / f"{patient}.parquet")
    labels = tmp_path / "labels.csv"
    labels.write_text("subject_id,prediction_time,label\n1,2024-05-02,0\n2,2024-05-02,1\n")
    dataset = read_source(Source(str(tmp_path), labels=str(labels)))
    seen = [codes_of(dataset.X, row) for row in (0, 1)]
    assert seen == [["SEX", "before"] + ["on the day"] * has_times] * 2


def test_midnight_is_local_to_the_place_of_the_record() -> None:
    local = pd.to_datetime(["2024-05-01T00:00", "2024-05-01T02:00"]).tz_localize("Europe/Berlin")
    assert Times.of(pd.Series(local, name="time"), "log").is_midnight.tolist() == [True, False]
    texts = column("2024-05-01T00:00:00+02:00", "2024-05-01T02:00:00+02:00")
    assert Times.of(texts, "log").is_midnight.tolist() == [True, False]
