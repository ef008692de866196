"""Patient events in every format: recognition, and the events that a label may see."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from inputs import (
    BIG,
    codes_of,
    events,
    omop_tables,
    stored,
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
from prefect_tune.tasks.data.formats.format import FORMATS, Given, recognize
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source


def read(folder: Any, **options: Any) -> Dataset:
    return read_source(Source(str(folder), **{"labels": "labels.csv", **options}))


def events_of(dataset: Dataset, row: int) -> list[tuple[str, str, float | None]]:
    assert isinstance(dataset.X, EventRows)
    frame = dataset.X.events.iloc[dataset.X.start[row] : dataset.X.stop[row]]
    return [
        ("" if pd.isna(time) else time.isoformat(), code, None if np.isnan(value) else value)
        for time, code, value in zip(frame["time"], frame["code"], frame["value"], strict=True)
    ]


def stream() -> pd.DataFrame:
    """Return events of ten patients, each with a birth and two codes, and five deaths."""
    rows: list[tuple] = []
    for who in range(1, 11):
        rows += [(who, "1950-03-04", "MEDS_BIRTH", None)]
        rows += [(who, "2020-01-05T23:59:59.999999", "CONDITION//7", None)]
        rows += [(who, f"2020-02-{who:02}T10:00:00", "DRUG//9", who / 2)]
        rows += [(who, "2021-06-01T00:00:00", "MEDS_DEATH", None)] * (who % 2)
    return pd.DataFrame(rows, columns=["subject_id", "time", "code", "numeric_value"])


def timed() -> pd.DataFrame:
    log = stream()
    return log.assign(time=pd.to_datetime(log["time"], format="ISO8601"))


def as_meds(folder: Path, *, is_older: bool = False) -> Path:
    who = "patient_id" if is_older else "subject_id"  # the former before version 0.3
    log = timed().rename(columns={"subject_id": who}).assign(text_value=None, hadm_id=1)
    (folder / "data").mkdir()
    for shard in (0, 1):
        written(log[(log[who] > 5) == shard], folder / "data" / f"{shard}.parquet")
    return folder


def as_table(folder: Path) -> Path:
    """Return the events of `stream` in random order, with one date among the times."""
    log = stream().replace({"2020-01-05T23:59:59.999999": "2020-01-05"})
    log = log.sample(frac=1, random_state=0)
    log = log[log["code"] != "MEDS_BIRTH"].rename(columns={"subject_id": "Patient_ID"})
    return Path(written(log, folder / "log.csv"))


STREAMS: dict[str, Callable[[Path], Path]] = {
    "MEDS": as_meds,
    "MEDS of old": lambda folder: as_meds(folder, is_older=True),
    "CSV": as_table,
    "Parquet": lambda folder: Path(written(timed(), folder / "log.parquet")),
}


@pytest.mark.parametrize("name", STREAMS)
def test_event_stream_gives_the_same_events_in_every_format(tmp_path, name) -> None:
    data = STREAMS[name](tmp_path)
    labels = pd.DataFrame({"patient": range(1, 11), "Date": "2021-01-01", "LABEL": [0, 1] * 5})
    is_table = data != tmp_path
    path = written(
        labels.astype({"patient": str if is_table else int}), tmp_path / "labels.parquet"
    )
    dataset = read(data, labels=path)
    assert dataset.format == ("events" if is_table else "meds")
    seen = [
        ("1950-03-04T00:00:00", "MEDS_BIRTH", None),
        ("2020-01-05T23:59:59.999999", "CONDITION//7", None),
        ("2020-02-03T10:00:00", "DRUG//9", 1.5),
    ]
    assert events_of(dataset, 2) == seen[name == "CSV" :]
    assert read_features(str(data), path, dataset).events.equals(dataset.X.events)


@pytest.mark.parametrize("form", ["capitals", "parquet"])
def test_omop_tables_may_be_upper_case_or_parquet(tmp_path, form) -> None:
    plain, folder = write_omop(tmp_path / "cdm"), tmp_path / "other"
    folder.mkdir()
    for name, frame in omop_tables().items():
        if form == "parquet":
            written(frame, folder / f"{name}.parquet")
        else:
            written(frame.rename(columns=str.upper), folder / f"{name.upper()}.csv.gz")
    labels = str(plain / "labels.csv")
    assert read(folder, labels=labels).digest() == read(plain, labels=labels).digest()


def test_events_of_a_meds_folder_end_at_the_prediction_time_and_are_stored(tmp_path) -> None:
    meds = write_meds(tmp_path / "m[1]? a*b")
    for path in list(meds.rglob("*.parquet")):
        path.rename(path.with_suffix(".pq"))
    dataset = read(meds, labels="labels/task")
    assert (dataset.kind, dataset.classes, len(dataset)) == ("events", (False, True), 80)
    assert len(np.unique(dataset.groups)) == 40
    seen = [set(codes_of(dataset.X, row)) for row in range(80)]
    assert "LATER" not in set.union(*seen)
    assert seen[0] == {"SEX//1", "A", "B"}
    back = stored(dataset, tmp_path)
    assert back.digest() == dataset.digest()
    rows = np.array([3, 1, 1])
    for one, other in ((back.X, dataset.X), (back.rows(rows), dataset.rows(rows))):
        np.testing.assert_array_equal((one.start, one.stop), (other.start, other.stop))
        for name, frame in other.frames().items():
            pd.testing.assert_frame_equal(one.frames()[name], frame)
    (tmp_path / "times.csv").write_text("subject_id,prediction_time\n100,2020-03-01\n")
    assert len(read_features(str(meds), str(tmp_path / "times.csv"), dataset)) == 1
    with pytest.raises(BadInput, match="--labels FILE"):
        read_features(str(meds), None, dataset)


def test_omop_tables_become_events_of_concepts(tmp_path) -> None:
    dataset = read(write_omop(tmp_path / "cdm"))
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
    assert dataset.classes == ("no", "yes")
    assert events_of(dataset, 0) == [
        ("", "GENDER//F", None),
        ("1950-03-04T00:00:00", "MEDS_BIRTH", None),
        ("2020-01-05T23:59:59.999999", "CONDITION//10509002", None),
        ("2020-01-07T03:41:29", "DRUG//1043400", 3.0),
        ("2020-02-01T00:00:00", "OBSERVATION//8302-2", 171.5),
        ("2020-03-01T23:59:59.999999", "SUPPLY//0337", 2.0),
        ("2020-03-02T01:00:00", "IMAGING//CT//51185008", None),
    ]
    assert [code for _, code, _ in events_of(dataset, 1)] == [
        "GENDER//M",
        "MEDS_BIRTH",
        "CONDITION//10509002",
        "OBSERVATION//72166-2//Never smoker",
        "MEDS_DEATH",
    ]


@pytest.mark.parametrize(("write", "unread"), [(write_synthea, "payers"), (write_omop, "drug_era")])
def test_unrelated_files_in_a_data_folder_are_skipped(tmp_path, write, unread) -> None:
    folder = write(tmp_path / "data")
    before = read(folder)
    listed = [note.rpartition(": ")[2] for note in before.notes if "not read" in note]
    assert listed == [unread]
    for path in list(folder.glob("*.csv")):
        for name in (f"{path.name}.bak", f"{path.stem}.old.csv", f"{path.stem}.txt"):
            (folder / name).write_text("x")
    assert read(folder).digest() == before.digest()


def test_format_of_a_file_follows_from_the_options(tmp_path) -> None:
    log = Location.at(written(events()[0], tmp_path / "log.csv"))
    plain = Location.at(written(table(), tmp_path / "table.csv"))
    assert recognize(Given(log)).name == "events"
    assert recognize(Given(log, target="code")).name == "table"
    assert recognize(Given(plain)).name == "table"
    assert recognize(Given(plain, labels="labels.csv")).name == "events"
    assert recognize(Given(plain), "events").name == "events"
    (tmp_path / "empty").mkdir()
    holds = [one.folder_holds for one in FORMATS.values()]
    with pytest.raises(BadInput, check=lambda error: all(one in str(error) for one in holds)):
        recognize(Given(Location.at(str(tmp_path / "empty"))))


Writer = Callable[[Path], Path]


def omop_with(name: str, **columns: Any) -> Writer:
    """Return a writer of OMOP tables with changed columns; `...` removes a column."""

    def write(folder: Path) -> Path:
        write_omop(folder)
        frame = omop_tables()[name]
        gone = [column for column, value in columns.items() if value is ...]
        changed = {column: value for column, value in columns.items() if value is not ...}
        written(frame.drop(columns=gone).assign(**changed), folder / f"{name}.csv")
        return folder

    return write


def omop_labeled(time: str) -> Writer:
    text = f"subject_id,prediction_time,label\n{BIG},{time},0\n{BIG + 1},{time},1\n"
    return with_file(write_omop, "labels.csv", text)


def with_file(write: Writer, name: str, text: str = "x") -> Writer:
    """Return a writer of a folder in which the text of one file is replaced."""

    def written(folder: Path) -> Path:
        (write(folder) / name).write_text(text)
        return folder

    return written


def log_with(change: Any = None, change_labels: Any = None) -> Writer:
    """Return a writer of a changed table of events or labels."""

    def write(folder: Path) -> Path:
        folder.mkdir()
        log, labels = events()
        written(change_labels(labels) if change_labels else labels, folder / "labels.csv")
        return Path(written(change(log) if change else log, folder / "log.parquet"))

    return write


def assigned(**columns: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.assign(**columns)


CONDITIONS = "conditions.csv"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "options", "named"),
    [
        (omop_with("measurement", person_id=...), {}, "'person_id'"),
        (omop_with("measurement", measurement_date="soon"), {}, "'soon'"),
        (omop_with("measurement", measurement_date=None), {}, "measurement_date"),
        (omop_with("condition_occurrence", condition_concept_id="x"), {}, "'x'"),
        (omop_with("person", year_of_birth=1950.5), {}, "1950.5"),
        (omop_with("person", month_of_birth=13), {}, "1950-13"),
        (omop_labeled("1949-01-01"), {}, f"patient {BIG}"),
        (omop_labeled("1980-01-01"), {}, "apart from birth"),
        (omop_labeled(""), {"test": "labels.csv"}, "without a time"),
        (write_omop, {"group": "site"}, "--group"),
        (write_omop, {"format": "meds"}, "MEDS data"),
        (write_omop, {"labels": None}, "--labels"),
        (with_file(write_omop, "PERSON.parquet"), {}, "table person"),
        (with_file(write_synthea, CONDITIONS, "START,CODE\n2020-01-01,1\n"), {}, "'patient'"),
        (with_file(write_synthea, CONDITIONS, "PATIENT,CODE\na-1,1\n"), {}, "'start'"),
        (with_file(write_synthea, CONDITIONS, "START,PATIENT,CODE\n,a-1,1\n"), {}, "without start"),
        (with_file(write_synthea, "patients.csv", "Id\na-1\n"), {}, "'birthdate'"),
        (log_with(lambda e: e.assign(subject_id=e["subject_id"] + float(BIG))), {}, "floats"),
        (log_with(assigned(time="01/02/2020")), {}, "'01/02/2020'"),
        (log_with(assigned(time=5)), {}, "'time'"),
        (log_with(lambda e: e.drop(columns="code")), {}, "for code"),
        (log_with(lambda e: e[:0]), {}, "no events"),
        (log_with(assigned(code=None)), {}, "without code"),
        (log_with(None, lambda t: t.assign(subject_id=t["subject_id"] + 1000)), {}, "80 labels"),
        (log_with(lambda e: e[e["time"].notna()], assigned(prediction_time="1999-01-01")), {},
         "80 of 80"),
        (log_with(None, lambda t: t.drop(columns="boolean_value")), {}, "--target"),
        (log_with(None, lambda t: t[:0]), {}, "no labels"),
        (log_with(None, assigned(boolean_value=True)), {}, "True in all"),
    ],
)  # fmt: skip
def test_error_names_the_cause_of_unusable_events(tmp_path, write, options, named) -> None:
    labels = str(tmp_path / "data" / "labels.csv")
    data = write(tmp_path / "data")
    with pytest.raises(BadInput, match=named):
        read(data, **{"labels": labels, **options})


@pytest.mark.parametrize(
    ("name", "columns", "values"),
    [
        ("drug_exposure", {"quantity": (0.0, 5.0), "days_supply": (30.0, 31.0)}, {0.0, 5.0}),
        ("drug_exposure", {"quantity": (0.0, 0.0), "days_supply": (0.0, 31.0)}, {0.0, 31.0}),
        ("measurement", {"value_as_number": (0.0, 1.0), "value_as_concept_id": (8, 8)}, {0.0, 1.0}),
    ],
)
def test_all_parts_of_an_omop_table_use_the_same_value_column(
    tmp_path, name, columns, values
) -> None:
    """Zero counts as a value, unless a quantity is zero in all parts of the table."""
    of = name.split("_", maxsplit=1)[0]
    date = "drug_exposure_start_date" if of == "drug" else f"{of}_date"
    (tmp_path / name).mkdir()
    for number in (0, 1):
        part = pd.DataFrame({"person_id": range(5 * number, 5 * number + 5), date: "2020-01-01"})
        found = {column: parts[number] for column, parts in columns.items()}
        part = part.assign(**{f"{of}_concept_id": 7, **found})
        part.to_parquet(tmp_path / name / f"{number}.parquet")
    X = read(tmp_path, labels=written(small_log()[1].head(10), tmp_path / "labels.csv")).X
    assert len(X.codes) == 1
    assert set(X.events["value"]) == values


def small_log(codes: tuple[str, ...] = ("042", "42", "250.00")) -> tuple[pd.DataFrame, ...]:
    log = pd.DataFrame(
        {
            "Patient": np.repeat([str(i) for i in range(20)], 3),
            "Time": ["2020-01-01", "2020-01-01T10:00:00", "2020-01-02"] * 20,
            "Code": list(codes) * 20,
        }
    )
    who = [str(i) for i in range(20)]
    return log, pd.DataFrame({"patient": who, "date": "2021-01-01", "Label": [0, 1] * 10})


def test_ids_with_and_without_leading_zeros_are_different_patients(tmp_path) -> None:
    log, labels = small_log()
    labels.loc[3, "patient"] = "003"
    path = written(log, tmp_path / "e.parquet")
    dataset = read(path, labels=written(labels, tmp_path / "labels.csv"))
    assert len(dataset) == 19
    assert dataset.X.codes == ["042", "250.00", "42"]
    assert any("patient 003" in note for note in dataset.notes)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_source_codes_of_omop_are_unchanged(tmp_path, suffix) -> None:
    conditions = pd.DataFrame({"person_id": range(20), "condition_concept_id": 0})
    conditions["condition_source_value"] = ["042", "42"] * 10
    conditions["condition_start_date"] = "2020-01-01"
    written(conditions, tmp_path / f"condition_occurrence.{suffix}")
    codes = read(tmp_path, labels=written(small_log()[1], tmp_path / "labels.csv")).X.codes
    assert codes == ["CONDITION//SOURCE//042", "CONDITION//SOURCE//42"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_codes_spelled_like_missing_values_require_the_na_values_option(tmp_path, suffix) -> None:
    paths = [
        written(frame, tmp_path / f"{name}.{suffix}")
        for name, frame in zip("el", small_log(("NA", "K", "CL")), strict=True)
    ]
    with pytest.raises(BadInput, match="20 events without"):
        read(paths[0], labels=paths[1])
    dataset = read(paths[0], labels=paths[1], na_values=("?",))
    assert dataset.X.codes == ["CL", "K", "NA"]
    with pytest.raises(BadInput, match="20 events without"):
        read_features(paths[0], paths[1], dataset)
    again = read_features(paths[0], paths[1], dataset, gaps=("", "?"))
    assert again.events.equals(dataset.X.events)


def dump(folder: Path, sep: str, quoting: int, suffix: str) -> Dataset:
    """Write twenty persons as COPY of PostgreSQL does; drugs reveal the class, and units differ."""
    folder.mkdir()
    null, who = r"\N", np.arange(20)
    is_odd, day = who % 2 == 1, "2021-02-03"
    tables = {
        "person": {"person_id": who, "gender_concept_id": 8507, "year_of_birth": 1960,
                   "month_of_birth": null},
        "drug_exposure": {"person_id": who, "drug_concept_id": np.where(is_odd, 7, 8),
                          "drug_exposure_start_date": day, "quantity": null, "days_supply": 30},
        "measurement": {"person_id": who, "measurement_concept_id": 3000,
                        "measurement_date": day, "measurement_datetime": null,
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


@pytest.mark.parametrize(
    ("sep", "quoting", "suffix"),
    [
        ("\t", csv.QUOTE_MINIMAL, ".txt"),
        ("|", csv.QUOTE_ALL, ".csv"),
    ],
)
def test_postgresql_dump_is_read(tmp_path, sep, quoting, suffix) -> None:
    X = dump(tmp_path / "cdm", sep, quoting, suffix).X
    assert X.codes == [
        "DRUG//7", "DRUG//8", "GENDER//8507",
        *(f"MEASUREMENT//3000//{n}" for n in (8840, 8841, 9191)), "MEDS_BIRTH",
    ]  # fmt: skip
    assert set(X.events["value"].dropna()) == {1.5, 30.0}
    assert X.descriptions()["MEASUREMENT//3000//9191"] == "glucose: positive"
    assert X.parents()["MEASUREMENT//3000//8840"] == ("CONCEPT//5", "MEASUREMENT//3000")


def with_splits(folder: Path, **splits: range) -> Path:
    write_meds(folder)
    pairs = [(who, split) for split, subjects in splits.items() for who in subjects]
    (folder / "metadata").mkdir()
    frame = pd.DataFrame(pairs, columns=["subject_id", "split"])
    frame.to_parquet(folder / "metadata" / "subject_splits.parquet")
    return folder


def test_splits_of_meds_decide_the_test_rows(tmp_path) -> None:
    splits = {"train": range(100, 120), "tuning": range(120, 130), "held_out": range(130, 139)}
    folder = with_splits(tmp_path / "meds", **splits)
    subject = (found := read(folder, labels="labels/task")).X.rows["subject_id"]
    assert set(subject[found.is_test]) == set(range(130, 139))
    [note] = [note for note in found.notes if "subject_splits" in note]
    assert "18 of held_out" in note
    assert "2 of no split" in note
    assert StudyOptions(test_size=0.3).source.splits == "ignore"
    assert read(folder, labels="labels/task", splits="ignore").is_test is None
    first, rest = (subject < 110).to_numpy(), (subject >= 110).to_numpy()
    rows = found.X.rows.assign(label=np.arange(len(found)) % 2)
    paths = [written(rows[part], tmp_path / f"{n}.csv") for n, part in enumerate((rest, first))]
    given = read(folder, labels=paths[0], test=paths[1])
    assert set(given.X.rows["subject_id"][given.is_test]) == set(range(100, 110))
    with pytest.raises(BadInput, match="10 patients"):
        read(folder, labels="labels/task", test=paths[1])


def test_splits_need_training_rows_but_no_test_rows(tmp_path) -> None:
    with pytest.raises(BadInput, match="--splits ignore"):
        read(with_splits(tmp_path / "a", held_out=range(100, 200)), labels="labels/task")
    untested = read(with_splits(tmp_path / "b", train=range(100, 200)), labels="labels/task")
    assert untested.is_test is None
