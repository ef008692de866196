"""Folders and files of patient events: what they are taken for, and which events they give."""

import numpy as np
import pandas as pd
import pytest
from inputs import BIG, events, omop_tables, table, write_meds, write_omop, write_synthea

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.dataset import Dataset
from prefect_tune.tasks.events import EventRows
from prefect_tune.tasks.files import Place
from prefect_tune.tasks.formats import recognised
from prefect_tune.tasks.source import Source, read_features, read_source


def read(folder, **options) -> Dataset:
    return read_source(Source(str(folder), **{"labels": "labels.csv", **options}))


def events_of(dataset: Dataset, row: int) -> list[tuple[str, str, float | None]]:
    assert isinstance(dataset.X, EventRows)
    rows, positions = dataset.X.expand()
    frame = dataset.X.events.iloc[positions[rows == row]]
    return [
        ("" if pd.isna(time) else time.isoformat(), code, None if np.isnan(value) else value)
        for time, code, value in zip(frame["time"], frame["code"], frame["value"], strict=True)
    ]


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


def test_omop_tables_are_the_same_data_in_any_kind_of_file_and_letters(tmp_path) -> None:
    digests = {
        read(write_omop(tmp_path / f"{suffix}{capitals}", suffix, capitals=capitals)).digest()
        for suffix in ("csv", "csv.gz", "parquet")
        for capitals in (False, True)
    }
    assert len(digests) == 1


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


@pytest.mark.parametrize("write", [write_omop, write_synthea])
def test_a_model_takes_the_same_format_to_predict(tmp_path, write) -> None:
    folder = write(tmp_path / "data")
    dataset = read(folder)
    X = read_features(str(folder), "labels.csv", dataset)
    assert isinstance(X, EventRows)
    assert X.events.equals(dataset.X.events)


def test_what_data_is_taken_for(tmp_path) -> None:
    log, labels = events()
    log.to_csv(tmp_path / "log.csv", index=False)
    log.rename(columns={"subject_id": "patient_id"}).to_parquet(tmp_path / "log.parquet")
    table().to_csv(tmp_path / "table.csv", index=False)
    labels.to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "parts").mkdir()
    log.to_parquet(tmp_path / "parts" / "0.parquet")
    seen = {
        "log.csv": "events",
        "log.parquet": "events",
        "table.csv": "table",
        "parts": "events",
        str(write_meds(tmp_path / "meds")): "meds",
        str(write_omop(tmp_path / "omop")): "omop",
        str(write_synthea(tmp_path / "synthea")): "synthea",
    }
    for name, kind in seen.items():
        place = Place.at(str(tmp_path / name))
        assert recognised(place, None, None, None) == kind
        assert recognised(place, "events", None, None) == "events"
    with_target = Place.at(str(tmp_path / "log.csv"))
    assert recognised(with_target, None, "code", None) == "table"
    assert recognised(Place.at(str(tmp_path / "table.csv")), None, None, "labels.csv") == "events"


def test_a_folder_of_parts_is_one_table(tmp_path) -> None:
    frame = table()
    (tmp_path / "parts").mkdir()
    frame[:70].to_parquet(tmp_path / "parts" / "0.parquet", index=False)
    frame[70:].to_parquet(tmp_path / "parts" / "1.parquet", index=False)
    frame.to_csv(tmp_path / "whole.csv", index=False)
    parts, whole = (
        read_source(Source(str(tmp_path / n), "target")) for n in ("parts", "whole.csv")
    )
    assert parts.digest() == whole.digest()


def test_meds_of_earlier_versions_and_without_values_is_read(tmp_path) -> None:
    """Version 0.3 has all columns, 0.4 may leave values out; older ones have patient_id."""
    folder = write_meds(tmp_path / "meds")
    again = write_meds(tmp_path / "older")
    for path in (again / "data" / "train").glob("*.parquet"):
        frame = pd.read_parquet(path).rename(columns={"subject_id": "patient_id"})
        frame.assign(text_value="x", hadm_id=1).to_parquet(path, index=False)
    first, second = (read(f, labels="labels/task") for f in (folder, again))
    assert first.digest() == second.digest()
    for path in (folder / "data" / "train").glob("*.parquet"):
        pd.read_parquet(path).drop(columns="numeric_value").to_parquet(path, index=False)
    assert read(folder, labels="labels/task").X.events["value"].isna().all()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("as_text", [False, True])
def test_large_ids_survive_whatever_their_type_in_the_labels(tmp_path, suffix, as_text) -> None:
    log, labels = events()
    log["subject_id"] += BIG
    labels["subject_id"] += BIG
    if as_text:
        labels["subject_id"] = labels["subject_id"].astype(str)
    for frame, name in ((log, "log"), (labels, "labels")):
        path = tmp_path / f"{name}.{suffix}"
        frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    dataset = read(tmp_path / f"log.{suffix}", labels=str(tmp_path / f"labels.{suffix}"))
    assert dataset.X.rows["subject_id"].tolist() == labels["subject_id"].astype(int).tolist()


def test_ids_that_lost_digits_are_refused(tmp_path) -> None:
    log, labels = events()
    log["subject_id"] = log["subject_id"] + float(BIG)
    log.to_parquet(tmp_path / "log.parquet")
    labels.to_parquet(tmp_path / "labels.parquet")
    with pytest.raises(BadInput, match="patient ids as floats"):
        read(tmp_path / "log.parquet", labels=str(tmp_path / "labels.parquet"))


def test_a_label_before_the_first_event_with_a_time_is_refused(tmp_path) -> None:
    folder = write_omop(tmp_path / "cdm")
    (folder / "labels.csv").write_text(
        f"subject_id,prediction_time,label\n{BIG},1949-01-01,0\n{BIG + 1},2022-01-01,1\n"
    )
    with pytest.raises(BadInput, match=f"1 of 2 labels .* patient {BIG}; drop"):
        read(folder)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("measurement", lambda f: f.drop(columns="person_id"), "no column 'person_id'"),
        ("drug_exposure", lambda f: f.drop(columns="drug_concept_id"), "no column 'drug_concept"),
        ("measurement", lambda f: f.drop(columns="measurement_date"), "no column 'measurement_da"),
        ("measurement", lambda f: f.assign(measurement_date="soon"), "do not parse.*'soon'"),
        ("measurement", lambda f: f.assign(measurement_date=None), "2 rows without measurement_d"),
        ("condition_occurrence", lambda f: f.assign(condition_concept_id="x"), "no whole numbers"),
    ],
)
def test_omop_tables_that_cannot_be_used_are_refused_by_name(
    tmp_path, name, change, message
) -> None:
    folder = write_omop(tmp_path / "cdm")
    change(omop_tables()[name]).to_csv(folder / f"{name}.csv", index=False)
    with pytest.raises(BadInput, match=message):
        read(folder)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("conditions", "START,CODE\n2020-01-01,1\n", "no column 'patient'"),
        ("conditions", "PATIENT,CODE\na-1,1\n", "no column 'start'"),
        ("conditions", "START,PATIENT,CODE\n,a-1,1\n", "1 rows without start"),
        ("patients", "Id\na-1\n", "no column 'birthdate'"),
    ],
)
def test_synthea_tables_that_cannot_be_used_are_refused_by_name(
    tmp_path, name, text, message
) -> None:
    folder = write_synthea(tmp_path / "synthea")
    (folder / f"{name}.csv").write_text(text)
    with pytest.raises(BadInput, match=message):
        read(folder)


@pytest.mark.parametrize("time", ["01/02/2020", "2020", "2020-05", "next week"])
def test_times_that_could_mean_two_things_are_refused(tmp_path, time) -> None:
    log, labels = events()
    log["time"] = log["time"].astype(str).replace("NaT", None)
    log.loc[5, "time"] = time
    log.to_parquet(tmp_path / "log.parquet")
    labels.to_parquet(tmp_path / "labels.parquet")
    with pytest.raises(BadInput, match=r"1 times that do not parse .* ISO 8601"):
        read(tmp_path / "log.parquet", labels=str(tmp_path / "labels.parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group": "site"}, "--group names a column of a table.*stay in one fold"),
        ({"drop": ("site",)}, "--drop names a column of a table"),
    ],
)
def test_options_of_tables_are_refused_for_events(tmp_path, options, message) -> None:
    with pytest.raises(BadInput, match=message):
        read(write_omop(tmp_path / "cdm"), **options)


@pytest.mark.parametrize("name", ["digits", "iris", "wine", "breast_cancer", "diabetes"])
def test_the_sets_of_scikit_learn_are_tables(name) -> None:
    dataset = read_source(Source(f"sklearn:{name}"))
    assert dataset.kind == dataset.format == "table"
    assert "target" not in dataset.X


@pytest.mark.parametrize(
    ("data", "message"),
    [("sklearn:linnerud", "three targets"), ("sklearn:irs", "Did you mean 'iris'")],
)
def test_other_sets_of_scikit_learn_are_refused(data, message) -> None:
    with pytest.raises(ValueError, match=message):
        read_source(Source(data))
