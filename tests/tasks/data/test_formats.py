"""Patient events in any format: what they are taken for, and which events a label sees."""

import csv
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import CommandLine
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import (
    BIG,
    codes_of,
    events,
    omop_tables,
    table,
    write_meds,
    write_omop,
    write_synthea,
    written,
)

from prefect_tune.flows.options.declared import StudyOptions
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.formats.format import FORMATS, Format, Given, recognise
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.schema import Times, utc_times
from prefect_tune.tasks.data.source import Source


def read(folder, **options) -> Dataset:
    return read_source(Source(str(folder), **{"labels": "labels.csv", **options}))


def events_of(dataset: Dataset, row: int) -> list[tuple[str, str, float | None]]:
    assert isinstance(dataset.X, EventRows)
    frame = dataset.X.events.iloc[dataset.X.start[row] : dataset.X.stop[row]]
    return [
        ("" if pd.isna(time) else time.isoformat(), code, None if np.isnan(value) else value)
        for time, code, value in zip(frame["time"], frame["code"], frame["value"], strict=True)
    ]


def stream() -> pd.DataFrame:
    """Events of ten patients, each with a date: birth, a condition, a drug, and five deaths."""
    rows: list[tuple] = []
    for patient in range(1, 11):
        rows += [(patient, "1950-03-04", "MEDS_BIRTH", None), (patient, "2020-01-05", "7", None)]
        rows += [(patient, f"2020-02-{patient:02}", "9", patient / 2)]
        rows += [(patient, "2021-06-01", "MEDS_DEATH", None)] * (patient % 2)
    return pd.DataFrame(rows, columns=["patient", "date", "code", "value"])


def split_by_code(folder: Path, tables: dict[str, tuple[str, dict[str, str]]], write) -> None:
    """Write the events of each code as a table with columns of other names."""
    for code, (name, columns) in tables.items():
        part = stream()[stream()["code"] == code]
        write(part[list(columns)].rename(columns=columns), folder / name)


def as_omop(folder: Path, suffix: str = "csv", *, capitals: bool = False) -> None:
    drug = {"patient": "person_id", "date": "drug_exposure_start_date", "code": "drug_concept_id"}
    condition = {name: column.replace("drug", "condition") for name, column in drug.items()}
    condition["date"] = "condition_start_date"
    tables = {
        "7": ("condition_occurrence", condition),
        "9": ("drug_exposure", {**drug, "value": "quantity"}),
        "MEDS_DEATH": ("death", {"patient": "person_id", "date": "death_date"}),
    }

    def write(frame: pd.DataFrame, path: Path) -> None:
        if capitals:
            frame, path = frame.rename(columns=str.upper), path.with_name(path.name.upper())
        written(frame, path.with_name(f"{path.name}.{suffix}"))

    split_by_code(folder, tables, write)
    born = {"year_of_birth": 1950, "month_of_birth": 3, "day_of_birth": 4}
    write(pd.DataFrame({"person_id": range(1, 11), **born}), folder / "person")


def as_synthea(folder: Path) -> None:
    event = {"patient": "PATIENT", "date": "START", "code": "CODE"}
    tables = {"7": ("conditions", event), "9": ("medications", {**event, "value": "DISPENSES"})}
    split_by_code(folder, tables, lambda frame, path: written(frame, path.with_suffix(".csv")))
    log = stream()
    died = log[log["code"] == "MEDS_DEATH"].set_index("patient")["date"]
    patients = pd.DataFrame({"Id": range(1, 11), "BIRTHDATE": "1950-03-04"})
    written(patients.assign(DEATHDATE=patients["Id"].map(died)), folder / "patients.csv")


def named_and_timed() -> pd.DataFrame:
    """The stream with codes and times as they are once it is read."""
    log = stream()
    kinds = {"7": "CONDITION//7", "9": "DRUG//9"}
    times = pd.to_datetime(log["date"]) + pd.Timedelta(86_400_000_000 - 1, "us")
    is_birth = log["code"] == "MEDS_BIRTH"
    times = times.where(~is_birth, pd.to_datetime(log["date"]))
    return log.assign(code=log["code"].replace(kinds), date=times.astype("datetime64[us]"))


def as_meds(folder: Path, *, is_older: bool = False) -> None:
    (folder / "data").mkdir()
    names = {"patient": "subject_id", "date": "time", "value": "numeric_value"}
    if is_older:  # versions before 0.3
        names["patient"] = "patient_id"
    log = named_and_timed().rename(columns=names).assign(text_value=None, hadm_id=1)
    for shard in (0, 1):
        part = log[(log[names["patient"]] > 5) == shard]
        part.to_parquet(folder / "data" / f"{shard}.parquet", index=False)


def as_table(folder: Path, suffix: str) -> None:
    log = named_and_timed()
    if suffix == "csv":  # a date among times, in any order
        times = log["date"].dt.strftime("%Y-%m-%dT%H:%M:%S.%f")
        log["date"] = times.mask(log["code"] == "CONDITION//7", stream()["date"])
        log = log.sample(frac=1, random_state=0)
    written(log.rename(columns={"patient": "Patient_ID"}), folder / f"log.{suffix}")


STREAMS = {
    "MEDS": as_meds,
    "MEDS of old": lambda folder: as_meds(folder, is_older=True),
    "OMOP": as_omop,
    "OMOP in capitals": lambda folder: as_omop(folder, "csv.gz", capitals=True),
    "OMOP as Parquet": lambda folder: as_omop(folder, "parquet"),
    "Synthea": as_synthea,
    "CSV": lambda folder: as_table(folder, "csv"),
    "Parquet": lambda folder: as_table(folder, "parquet"),
}


def format_of(name: str) -> str:
    return "events" if name in ("CSV", "Parquet") else name.partition(" ")[0].lower()


def test_each_format_of_events_has_the_stream() -> None:
    of_events = {name for name, one in FORMATS.items() if one.kind == "events"}
    assert {format_of(name) for name in STREAMS} == of_events


@pytest.fixture(scope="module")
def stream_digest(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("stream")
    as_meds(folder)
    labels = pd.DataFrame({"patient": range(1, 11), "date": "2021-01-01", "label": [0, 1] * 5})
    return read(folder, labels=written(labels, folder / "labels.csv")).digest()


@pytest.mark.slow
@pytest.mark.parametrize(("as_text", "suffix"), [(False, "csv"), (True, "parquet")])
@pytest.mark.parametrize("name", STREAMS)
def test_one_stream_is_the_same_data_in_every_format(
    tmp_path, stream_digest, name, as_text, suffix
) -> None:
    STREAMS[name](tmp_path)
    labels = pd.DataFrame({"patient": range(1, 11), "Date": "2021-01-01", "LABEL": [0, 1] * 5})
    path = written(
        labels.astype({"patient": str if as_text else int}), tmp_path / f"labels.{suffix}"
    )
    is_table = format_of(name) == "events"
    data = tmp_path / f"log.{name.lower()}" if is_table else tmp_path
    dataset = read(data, labels=path)
    assert dataset.digest() == stream_digest
    assert dataset.format == format_of(name)
    assert events_of(dataset, 2) == [
        ("1950-03-04T00:00:00", "MEDS_BIRTH", None),
        ("2020-01-05T23:59:59.999999", "CONDITION//7", None),
        ("2020-02-03T23:59:59.999999", "DRUG//9", 1.5),
    ]
    again = read_features(str(data), path, dataset)
    assert again.events.equals(dataset.X.events)


def test_omop_tables_become_events_of_concepts(tmp_path) -> None:
    dataset = read(write_omop(tmp_path / "cdm"))
    assert dataset.format == "omop"
    assert dataset.X.rows["subject_id"].tolist() == [BIG, BIG + 1]
    assert events_of(dataset, 0) == [
        ("", "GENDER//8507", None),
        ("", "RACE//SOURCE//white", None),
        ("1950-03-04T00:00:00", "MEDS_BIRTH", None),
        ("2020-01-05T08:30:00", "CONDITION//192671", None),
        ("2020-01-06T23:59:59.999999", "DRUG//1118084", 30.0),
        ("2020-02-01T23:59:59.999999", "MEASUREMENT//3006322", 36.6),
        ("2021-01-01T23:59:59.999999", "MEDS_DEATH", None),
    ]
    assert events_of(dataset, 1) == [
        ("", "GENDER//8532", None),
        ("1960-01-01T00:00:00", "MEDS_BIRTH", None),
        ("2020-01-05T23:59:59.999999", "CONDITION//SOURCE//X1", None),
        ("2020-01-06T23:59:59.999999", "DRUG//1124300", 0.0),
        ("2020-02-01T23:59:59.999999", "MEASUREMENT//3006322//4188539", None),
    ]


def test_synthea_tables_become_events_of_codes(tmp_path) -> None:
    dataset = read(write_synthea(tmp_path / "synthea"))
    assert dataset.format == "synthea"
    assert dataset.classes == ("no", "yes")
    assert events_of(dataset, 0) == [
        ("", "GENDER//F", None),
        ("1950-03-04T00:00:00", "MEDS_BIRTH", None),
        ("2020-01-05T23:59:59.999999", "CONDITION//10509002", None),
        ("2020-01-07T03:41:29", "DRUG//1043400", 3.0),
        ("2020-02-01T00:00:00", "OBSERVATION//8302-2", 171.5),
    ]
    assert [code for _, code, _ in events_of(dataset, 1)] == [
        "GENDER//M",
        "MEDS_BIRTH",
        "CONDITION//10509002",
        "OBSERVATION//72166-2//Never smoker",
        "MEDS_DEATH",
    ]


def test_supplies_and_imaging_of_synthea_are_events(tmp_path) -> None:
    folder = write_synthea(tmp_path / "synthea")
    (folder / "supplies.csv").write_text("DATE,PATIENT,CODE,QUANTITY\n2020-03-01,a-1,0337,2\n")
    (folder / "imaging_studies.csv").write_text(
        "Id,DATE,PATIENT,BODYSITE_CODE,MODALITY_CODE\nx,2020-03-02T01:00:00Z,a-1,51185008,CT\n"
    )
    assert events_of(read(folder), 0)[-2:] == [
        ("2020-03-01T23:59:59.999999", "SUPPLY//0337", 2.0),
        ("2020-03-02T01:00:00", "IMAGING//CT//51185008", None),
    ]


@pytest.mark.parametrize(("write", "unread"), [(write_synthea, "payers"), (write_omop, "drug_era")])
def test_tables_of_a_folder_that_are_not_read_are_listed(tmp_path, write, unread) -> None:
    folder = write(tmp_path / "data")
    (folder / "notes.txt").write_text("no table")
    notes = [note for note in read(folder).notes if "not read" in note]
    assert [note.rpartition(": ")[2] for note in notes] == [unread]


def test_what_a_file_is_taken_for_follows_from_the_options(tmp_path) -> None:
    log, table_ = (Location.at(written(frame, tmp_path / name)) for frame, name in (
        (events()[0], "log.csv"), (table(), "table.csv")))  # fmt: skip
    assert recognise(Given(log)).name == "events"
    assert recognise(Given(log, target="code")).name == "table"
    assert recognise(Given(table_)).name == "table"
    assert recognise(Given(table_, labels="labels.csv")).name == "events"
    assert recognise(Given(table_), "events").name == "events"


def omop_with(name: str, **columns: Any) -> Callable[[Path], Path]:
    """Writer of OMOP tables of which one has other columns; `...` is for none."""

    def write(folder: Path) -> Path:
        write_omop(folder)
        frame = omop_tables()[name]
        gone = [column for column, value in columns.items() if value is ...]
        changed = {column: value for column, value in columns.items() if value is not ...}
        written(frame.drop(columns=gone).assign(**changed), folder / f"{name}.csv")
        return folder

    return write


def omop_labelled(time: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        text = f"subject_id,prediction_time,label\n{BIG},{time},0\n{BIG + 1},{time},1\n"
        (write_omop(folder) / "labels.csv").write_text(text)
        return folder

    return write


def with_file(write: Callable[[Path], Path], name: str, text: str = "x") -> Callable[[Path], Path]:
    """Writer of a folder in which one file has another text."""

    def written(folder: Path) -> Path:
        (write(folder) / name).write_text(text)
        return folder

    return written


def log_with(column: str, change: Callable[[pd.Series], Any]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        folder.mkdir()
        frame, labels = events()
        frame[column] = change(frame[column])
        written(labels, folder / "labels.csv")
        return Path(written(frame, folder / "log.parquet"))

    return write


CONDITIONS = "conditions.csv"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "options", "message"),
    [
        (omop_with("measurement", person_id=...), {}, "'person_id'"),
        (omop_with("drug_exposure", drug_concept_id=...), {}, "'drug_concept_id'"),
        (omop_with("measurement", measurement_date=...), {}, "'measurement_date'"),
        (omop_with("measurement", measurement_date="soon"), {}, "'soon'"),
        (omop_with("measurement", measurement_date=None), {}, "without measurement_date"),
        (omop_with("condition_occurrence", condition_concept_id="x"), {}, "'x'"),
        (omop_with("person", year_of_birth="unknown"), {}, "'unknown'"),
        (omop_with("person", year_of_birth=1950.5), {}, "1950.5"),
        (omop_with("person", month_of_birth=13), {}, "1950-13"),
        (omop_with("person", year_of_birth=51), {}, "51-"),
        (omop_labelled("1949-01-01"), {}, f"patient {BIG}"),
        (omop_labelled("1980-01-01"), {}, "birth aside"),
        (omop_labelled(""), {"test": "labels.csv"}, "without a time"),
        (write_omop, {"group": "site"}, "--group"),
        (write_omop, {"drop": ("site",)}, "--drop"),
        (with_file(write_omop, "PERSON.parquet"), {}, "table person"),
        (with_file(write_synthea, "CONDITIONS.parquet"), {}, "table conditions"),
        (with_file(write_synthea, CONDITIONS, "START,CODE\n2020-01-01,1\n"), {}, "'patient'"),
        (with_file(write_synthea, CONDITIONS, "PATIENT,CODE\na-1,1\n"), {}, "'start'"),
        (with_file(write_synthea, CONDITIONS, "START,PATIENT,CODE\n,a-1,1\n"), {}, "without start"),
        (with_file(write_synthea, "patients.csv", "Id\na-1\n"), {}, "'birthdate'"),
        (log_with("subject_id", lambda ids: ids + float(BIG)), {}, "ids as floats"),
        (log_with("time", lambda times: ["01/02/2020"] * len(times)), {}, "8601"),
    ],
)  # fmt: skip
def test_events_in_a_format_that_cannot_be_used_are_refused_by_name(
    tmp_path, write, options, message
) -> None:
    data = write(tmp_path / "data")
    with pytest.raises(BadInput, match=message):
        read(data, labels=str(tmp_path / "data" / "labels.csv"), **options)


@pytest.mark.parametrize("name", ["digits", "iris", "wine", "breast_cancer", "diabetes"])
def test_the_sets_of_scikit_learn_are_tables(name) -> None:
    dataset = read_source(Source(f"sklearn:{name}"))
    assert dataset.kind == dataset.format == "table"
    assert "target" not in dataset.X


def written_parts(folder, name: str, *parts: pd.DataFrame) -> None:
    (folder / name).mkdir(parents=True)
    for number, part in enumerate(parts):
        part.to_parquet(folder / name / f"{number}.parquet")


def omop_parts(folder, name: str, columns: dict[str, tuple]) -> Dataset:
    """A table of OMOP in two parts of five patients each; a column has one value in each part."""
    of = name.split("_", maxsplit=1)[0]
    part = pd.DataFrame({"person_id": range(5), f"{of}_concept_id": 7})
    dates = "drug_exposure_start_date" if of == "drug" else f"{of}_date"
    parts = [
        part.assign(
            person_id=part["person_id"] + 5 * number,
            **{dates: "2020-01-01"},
            **{column: values[number] for column, values in columns.items()},
        )
        for number in (0, 1)
    ]
    written_parts(folder, name, *parts)
    (folder / "labels.csv").write_text(
        "patient,date,label\n" + "".join(f"{i},2021-01-01,{i % 2}\n" for i in range(10))
    )
    return read(folder)


@pytest.mark.parametrize(
    ("quantity", "days", "expected"),
    [((0.0, 5.0), (30.0, 31.0), {0.0, 5.0}), ((0.0, 0.0), (0.0, 31.0), {0.0, 31.0})],
)
def test_all_parts_of_an_omop_table_have_the_same_column_of_values(
    tmp_path, quantity, days, expected
) -> None:
    dataset = omop_parts(
        tmp_path / "cdm", "drug_exposure", {"quantity": quantity, "days_supply": days}
    )
    assert set(dataset.X.events["value"]) == expected


def test_a_measured_zero_is_a_value_and_no_answer(tmp_path) -> None:
    columns = {"value_as_number": (0.0, 1.0), "value_as_concept_id": (4188539, 4188539)}
    dataset = omop_parts(tmp_path / "cdm", "measurement", columns)
    assert dataset.X.codes == ["MEASUREMENT//7"]
    assert set(dataset.X.events["value"]) == {0.0, 1.0}


def test_midnight_in_omop_is_local_to_the_place_of_the_record(tmp_path) -> None:
    times = pd.to_datetime(["2020-01-01T00:00", "2020-01-01T01:00"]).tz_localize("Europe/Berlin")
    dataset = omop_parts(tmp_path / "cdm", "measurement", {"measurement_datetime": tuple(times)})
    ends = dataset.X.events["time"].astype(str)
    assert set(ends) == {"2020-01-01 22:59:59.999999", "2020-01-01 00:00:00.000000"}


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_omop, write_synthea])
def test_files_that_are_no_tables_are_passed_over(tmp_path, write) -> None:
    folder = write(tmp_path / "data")
    before = read(folder).digest()
    for path in list(folder.glob("*.csv")):
        (folder / f"{path.name}.bak").write_text("x")
        (folder / f"{path.stem}.old.csv").write_text("x")
        (folder / f"{path.stem}.txt").write_text("x")
    assert read(folder).digest() == before


@pytest.mark.parametrize("name", ["m[1]", "what?", "a*b"])
@pytest.mark.parametrize("suffix", [".parquet", ".pq"])
def test_a_folder_may_have_any_name(tmp_path, name, suffix) -> None:
    folder = write_meds(tmp_path / name)
    for path in list(folder.rglob("*.parquet")):
        path.rename(path.with_suffix(suffix))
    assert len(read(folder, labels=str(folder / "labels" / "task"))) == 80


TOY = Format(
    name="toy",
    description="a table of semicolons",
    kind="table",
    recognises=lambda given: given.location.has_suffix([".toy"]),
    read=lambda location, texts: [
        pd.read_csv(location.path, sep=";", dtype=dict.fromkeys(texts, str))
    ],
)


@pytest.fixture
def toys(tmp_path) -> Iterator[str]:
    """A table in a format that is known as long as the test runs."""
    FORMATS.register(TOY)
    table().to_csv(tmp_path / "data.toy", sep=";", index=False)
    yield str(tmp_path / "data.toy")
    FORMATS._known.pop("toy")


def test_a_registered_format_is_recognised_and_read_for_training_test_and_prediction(toys) -> None:
    dataset = read_source(Source(toys, "target"))
    assert (dataset.format, dataset.kind) == ("toy", "table")
    assert read_source(Source(toys, "target", format="toy")).digest() == dataset.digest()
    assert len(read_source(Source(toys, "target", test=toys))) == 2 * len(dataset)
    assert len(read_features(toys, None, dataset)) == len(dataset)
    with pytest.raises(ValueError, match="toy"):
        FORMATS.register(replace(TOY, description="another"))


@pytest.mark.full
@pytest.mark.usefixtures("server")
def test_a_study_runs_on_a_registered_format(toys, tmp_path) -> None:
    run = CommandLine(tmp_path / "home")
    ran = run(
        "run", toys, "--format", "toy", "--target", "target",
        "--space", "small", "--method", "random", "--trials", 1, "--study", "s",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.stderr
    assert "as a table of semicolons" in ran.stdout + ran.stderr
    assert run("predict", "s", toys, "--out", tmp_path / "out.csv").exit_code == 0


def test_a_folder_that_no_format_knows_is_told_what_each_would_hold(tmp_path) -> None:
    with pytest.raises(BadInput) as error:
        recognise(Given(Location.at(str(tmp_path))))
    assert all(f.folder_holds in str(error.value) for f in FORMATS.values())


def log(codes=("042", "42", "250.00"), ids="{}") -> tuple[pd.DataFrame, pd.DataFrame]:
    patients = [ids.format(i) for i in range(20)]
    events = pd.DataFrame(
        {
            "Patient": np.repeat(patients, 3),
            "Time": ["2020-01-01", "2020-01-01T10:00:00", "2020-01-02"] * 20,
            "Code": list(codes) * 20,
            "Value": [1.5, np.nan, 2] * 20,
        }
    )
    labels = pd.DataFrame({"patient": patients, "date": "2021-01-01", "Label": [0, 1] * 10})
    return events, labels


def test_ids_with_and_without_leading_zeros_are_different_patients(tmp_path) -> None:
    events, labels = log()
    labels.loc[3, "patient"] = "003"
    paths = written(events, tmp_path / "e.parquet"), written(labels, tmp_path / "l.csv")
    dataset = read_source(Source(paths[0], labels=paths[1]))
    assert len(dataset) == 19
    assert any("patient 003" in note for note in dataset.notes)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_source_codes_of_omop_stay_as_they_are(tmp_path, suffix) -> None:
    conditions = pd.DataFrame(
        {
            "person_id": range(20),
            "condition_concept_id": 0,
            "condition_source_value": ["042", "42"] * 10,
            "condition_start_date": "2020-01-01",
        }
    )
    written(conditions, tmp_path / f"condition_occurrence.{suffix}")
    labels = written(log()[1], tmp_path / "labels.csv")
    codes = read_source(Source(str(tmp_path), labels=labels)).X.codes
    assert codes == ["CONDITION//SOURCE//042", "CONDITION//SOURCE//42"]


def test_a_code_that_is_spelled_like_a_gap_is_refused_with_the_reason(tmp_path) -> None:
    events, labels = log(codes=("NA", "K", "CL"))
    paths = written(events, tmp_path / "e.csv"), written(labels, tmp_path / "l.csv")
    with pytest.raises(BadInput, match="20 events without"):
        read_source(Source(paths[0], labels=paths[1]))


REFUSED = ("2024/05/01", "2024.05.01", "2024 05 01", "2024-5-1", "2024-05", "2024-05-01T",
           "2024-05-01Z", "2024-05-01+02:00", "2024-13-01", "01.05.2024", "")  # fmt: skip


def column(*values) -> pd.Series:
    return pd.Series(values, name="time")


def written_log(folder, times, *, suffix="parquet") -> Source:
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
    with pytest.raises(BadInput, match="ISO 8601"):
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


@settings(max_examples=30)
@given(st.dates(date(1900, 1, 1), date(2200, 1, 1)), st.sampled_from(["%Y-%m-%d", "%Y%m%d"]))
def test_any_date_ends_before_the_next_one_starts(day, pattern) -> None:
    text = column(day.strftime(pattern))
    end = utc_times(text, "log", at_end_of_day=True)[0]
    assert end + pd.Timedelta(1, "us") == pd.Timestamp(day) + pd.Timedelta(days=1)


DAYS = ("2024-05-01", "2024-05-02")
MIDNIGHTS = tuple(f"{day}T00:00:00" for day in DAYS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "suffix", "is_noted"),
    [
        (DAYS, "csv", False),
        ((20240501, 20240502), "csv", False),
        ((" 2024-05-01", " 2024-05-02"), "csv", False),
        (MIDNIGHTS, "csv", True),
        ((date(2024, 5, 1), date(2024, 5, 2)), "parquet", False),
        *((pd.to_datetime(DAYS).tz_localize(z), "parquet", True)
          for z in (None, "UTC", "Europe/Berlin")),
    ],
)  # fmt: skip
def test_an_event_of_the_day_of_its_label_is_not_seen(tmp_path, times, suffix, is_noted) -> None:
    """Times that are all at midnight are dates, which is noted."""
    source = written_log(tmp_path, times, suffix=suffix)
    dataset = read_source(source)
    assert [codes_of(dataset.X, row) for row in (0, 1)] == [["before"], ["before"]]
    assert any("midnight" in note for note in dataset.notes) == is_noted


@pytest.mark.slow
@pytest.mark.parametrize("have_clock", [False, True])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_midnight_means_what_it_meant_in_training_whatever_else_is_in_the_file(
    tmp_path, have_clock, zone
) -> None:
    """A nightly export has midnights alone, and one more event of another patient none of that."""
    times = pd.to_datetime(DAYS).tz_localize(zone)
    clock = times + pd.Timedelta("9h")
    trained = read_source(written_log(tmp_path, clock if have_clock else times))
    for other in ([], [(3, clock[0], "other")]):
        log = pd.DataFrame(
            [(1, times[0], "before"), (1, times[1], "at midnight"), *other],
            columns=["patient", "time", "code"],
        )
        log.to_parquet(tmp_path / "new.parquet")
        rows = pd.DataFrame({"patient": [1], "prediction_time": [times[1] + pd.Timedelta("8h")]})
        rows.to_parquet(tmp_path / "rows.parquet")
        new = read_features(str(tmp_path / "new.parquet"), str(tmp_path / "rows.parquet"), trained)
        assert isinstance(new, EventRows)
        seen = ["before", "at midnight"] if have_clock else ["before"]
        assert codes_of(new, 0) == seen


def test_midnight_among_other_times_is_midnight(tmp_path) -> None:
    times = pd.to_datetime(["2024-05-01T10:00", "2024-05-02T00:00"])
    dataset = read_source(written_log(tmp_path, times))
    assert codes_of(dataset.X, 0) == ["before", "leak"]
    assert not any("midnight" in note for note in dataset.notes)


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


def test_midnight_is_local_to_the_place_of_the_record() -> None:
    local = pd.to_datetime(["2024-05-01T00:00", "2024-05-01T02:00"]).tz_localize("Europe/Berlin")
    assert Times.of(pd.Series(local, name="time"), "log").is_midnight.tolist() == [True, False]
    texts = column("2024-05-01T00:00:00+02:00", "2024-05-01T02:00:00+02:00")
    assert Times.of(texts, "log").is_midnight.tolist() == [True, False]


def dump(folder: Path, sep: str, quoting: int, suffix: str) -> Dataset:
    """Twenty persons as COPY of PostgreSQL writes them; drugs tell the class, and units differ."""
    folder.mkdir()
    null, who = r"\N", np.arange(20)
    is_odd = who % 2 == 1
    tables = {
        "person": {"person_id": who, "gender_concept_id": 8507, "year_of_birth": 1960,
                   "month_of_birth": null, "race_concept_id": 0},
        "drug_exposure": {"person_id": who, "drug_concept_id": np.where(is_odd, 7, 8),
                          "drug_exposure_start_date": "2021-02-03",
                          "drug_exposure_start_datetime": "2021-02-03 00:00:00",
                          "quantity": null, "days_supply": 30},
        "measurement": {"person_id": who, "measurement_concept_id": 3000,
                        "measurement_date": "2021-02-04", "measurement_datetime": null,
                        "value_as_number": np.where(who % 3, "1.5", null),
                        "value_as_concept_id": np.where(who % 3, null, "9191"),
                        "unit_concept_id": 8840 + is_odd},
        "concept": {"concept_id": [3000, 9191], "concept_name": ["glucose", "positive"],
                    "domain_id": "Measurement"},
        "concept_ancestor": {"ancestor_concept_id": [5], "descendant_concept_id": [3000]},
    }  # fmt: skip
    for name, columns in tables.items():
        path = folder / f"{name}{suffix}"
        pd.DataFrame(columns).to_csv(path, sep=sep, quoting=quoting, index=False)
    labels = pd.DataFrame({"person_id": who, "prediction_time": "2021-03-01", "label": is_odd})
    return read(folder, labels=written(labels, folder / "labels.csv"))


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize(
    ("sep", "suffix"), [(",", ".csv"), ("\t", ".txt"), ("\t", ".csv.gz"), ("|", ".csv")]
)
def test_a_dump_of_postgresql_is_read(tmp_path, sep, quoting, suffix) -> None:
    plain = dump(tmp_path / "plain", ",", csv.QUOTE_MINIMAL, ".csv")
    assert plain.X.codes == [
        "DRUG//7", "DRUG//8", "GENDER//8507",
        *(f"MEASUREMENT//3000//{n}" for n in (8840, 8841, 9191)), "MEDS_BIRTH",
    ]  # fmt: skip
    assert plain.X.descriptions()["MEASUREMENT//3000//9191"] == "glucose: positive"
    assert plain.X.parents()["MEASUREMENT//3000//8840"] == ("CONCEPT//5", "MEASUREMENT//3000")
    found = dump(tmp_path / "cdm", sep, quoting, suffix)
    assert found.digest() == plain.digest()
    assert found.X.descriptions() == plain.X.descriptions()


def with_splits(folder: Path, **splits: range) -> Path:
    write_meds(folder)
    (folder / "metadata").mkdir()
    pairs = [(who, split) for split, subjects in splits.items() for who in subjects]
    frame = pd.DataFrame(pairs, columns=["subject_id", "split"])
    frame.to_parquet(folder / "metadata" / "subject_splits.parquet")
    return folder


def test_the_splits_of_meds_decide_the_test_rows(tmp_path) -> None:
    splits = {"train": range(100, 120), "tuning": range(120, 130), "held_out": range(130, 139)}
    folder = with_splits(tmp_path / "meds", **splits)
    subject = (found := read(folder, labels="labels/task")).X.rows["subject_id"]
    assert set(subject[found.is_test]) == set(range(130, 139))
    [note] = [note for note in found.notes if "subject_splits" in note]
    assert "18 of held_out" in note
    assert "2 of no split" in note
    assert StudyOptions(test_size=0.3).source.splits == "ignore"
    ignored = read(folder, labels="labels/task", splits="ignore")
    assert ignored.is_test is None
    assert any("not used" in note for note in ignored.notes)
    first, rest = (subject < 110).to_numpy(), (subject >= 110).to_numpy()
    rows = found.X.rows.assign(label=np.arange(len(found)) % 2)
    paths = [written(rows[part], tmp_path / f"{n}.csv") for n, part in enumerate((rest, first))]
    given = read(folder, labels=paths[0], test=paths[1])
    assert set(given.X.rows["subject_id"][given.is_test]) == set(range(100, 110))
    assert any("--test" in note for note in given.notes)


def test_splits_that_leave_no_row_to_learn_from_or_to_test(tmp_path) -> None:
    with pytest.raises(BadInput, match="--splits ignore"):
        read(with_splits(tmp_path / "a", held_out=range(100, 200)), labels="labels/task")
    untested = read(with_splits(tmp_path / "b", train=range(100, 200)), labels="labels/task")
    assert untested.is_test is None
    assert any("are drawn" in note for note in untested.notes)
