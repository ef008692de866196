"""Patient events in any format: what they are taken for, and which events a label sees."""

from collections.abc import Iterator
from datetime import date

import numpy as np
import pandas as pd
import pytest
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from inputs import BIG, codes_of, events, omop_tables, table, write_meds, write_omop, write_synthea

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import Dataset
from prefect_tune.tasks.data.events import EventRows
from prefect_tune.tasks.data.formats import registry
from prefect_tune.tasks.data.formats.format import Format, Given
from prefect_tune.tasks.data.formats.registry import FORMATS, recognise, register_format
from prefect_tune.tasks.data.location import Location
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table import like_training
from prefect_tune.tasks.data.table_files import GAPS
from prefect_tune.tasks.data.timestamps import Times, utc_times


def read(folder, **options) -> Dataset:
    return read_source(Source(str(folder), **{"labels": "labels.csv", **options}))


def events_of(dataset: Dataset, row: int) -> list[tuple[str, str, float | None]]:
    assert isinstance(dataset.X, EventRows)
    frame = dataset.X.events.iloc[dataset.X.start[row] : dataset.X.stop[row]]
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
        given = Given(Location.at(str(tmp_path / name)))
        assert recognise(given).name == kind
        assert recognise(given, "events").name == "events"
    log_csv, table_csv = (Location.at(str(tmp_path / name)) for name in ("log.csv", "table.csv"))
    assert recognise(Given(log_csv, target="code")).name == "table"
    assert recognise(Given(table_csv, labels="labels.csv")).name == "events"


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
        ("condition_occurrence", lambda f: f.assign(condition_concept_id="x"), "'x' in its column"),
        (
            "person",
            lambda f: f.assign(year_of_birth="unknown"),
            "person.csv has 'unknown' in its c",
        ),
        ("person", lambda f: f.assign(year_of_birth=1950.5), "'1950.5' in its column 'year_of_b"),
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
    [
        ((0.0, 5.0), (30.0, 31.0), {0.0, 5.0}),
        ((0.0, 0.0), (0.0, 31.0), {0.0, 31.0}),
    ],
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


def test_midnight_in_omop_is_that_of_where_it_was_noted(tmp_path) -> None:
    times = pd.to_datetime(["2020-01-01T00:00", "2020-01-01T01:00"]).tz_localize("Europe/Berlin")
    dataset = omop_parts(tmp_path / "cdm", "measurement", {"measurement_datetime": tuple(times)})
    ends = dataset.X.events["time"].astype(str)
    assert set(ends) == {"2020-01-01 22:59:59.999999", "2020-01-01 00:00:00.000000"}


@pytest.mark.parametrize("write", [write_omop, write_synthea])
def test_files_that_are_no_tables_are_passed_over(tmp_path, write) -> None:
    folder = write(tmp_path / "data")
    before = read(folder).digest()
    for path in list(folder.glob("*.csv")):
        (folder / f"{path.name}.bak").write_text("x")
        (folder / f"{path.stem}.old.csv").write_text("x")
        (folder / f"{path.stem}.txt").write_text("x")
    assert read(folder).digest() == before


@pytest.mark.parametrize(("write", "name"), [(write_omop, "person"), (write_synthea, "conditions")])
def test_two_files_of_the_same_table_are_refused_by_name(tmp_path, write, name) -> None:
    folder = write(tmp_path / "data")
    (folder / f"{name.upper()}.parquet").write_text("x")
    with pytest.raises(BadInput, match=rf"{name}\..* are both the table {name}; remove one"):
        read(folder)


@pytest.mark.parametrize("name", ["m[1]", "what?", "a*b"])
@pytest.mark.parametrize("suffix", [".parquet", ".pq"])
def test_a_folder_may_have_any_name(tmp_path, name, suffix) -> None:
    folder = write_meds(tmp_path / name)
    for path in list(folder.rglob("*.parquet")):
        path.rename(path.with_suffix(suffix))
    assert len(read(folder, labels=str(folder / "labels" / "task"))) == 80


def test_a_label_after_birth_and_before_all_else_is_refused(tmp_path) -> None:
    folder = write_omop(tmp_path / "cdm")
    (folder / "labels.csv").write_text(
        f"subject_id,prediction_time,label\n{BIG},1980-01-01,0\n{BIG + 1},2022-01-01,1\n"
    )
    with pytest.raises(BadInput, match=rf"1 of 2 labels .*birth aside.* patient {BIG}; drop"):
        read(folder)


@pytest.mark.parametrize("name", ["Label", "LABEL", "Boolean_Value"])
def test_columns_of_labels_are_known_in_letters_of_any_size(tmp_path, name) -> None:
    folder = write_omop(tmp_path / "cdm")
    labels = pd.read_csv(folder / "labels.csv").rename(columns={"label": name})
    labels.to_csv(folder / "labels.csv", index=False)
    assert read(folder).classes == (0, 1)


def test_a_label_without_a_class_is_refused_where_it_is(tmp_path) -> None:
    folder = write_omop(tmp_path / "cdm")
    text = (folder / "labels.csv").read_text()
    (folder / "test.csv").write_text(text.replace(",0\n", ",\n"))
    with pytest.raises(BadInput, match=r"1 of 2 rows of .*test.csv have no 'label'"):
        read(folder, test="test.csv")


TOY = Format(
    name="toy",
    description="a table of semicolons",
    kind="table",
    recognises=lambda given: given.location.has_suffix([".toy"]),
    read=lambda location, texts: [
        pd.read_csv(location.path, sep=";", dtype=dict.fromkeys(texts, str))
    ],
)


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    register_format(TOY)
    yield
    del registry._FORMATS["toy"]


@pytest.fixture
def toys(tmp_path) -> str:
    table().to_csv(tmp_path / "data.toy", sep=";", index=False)
    return str(tmp_path / "data.toy")


def test_a_registered_format_is_recognised_and_read_for_training_test_and_prediction(toys) -> None:
    dataset = read_source(Source(toys, "target"))
    assert (dataset.format, dataset.kind) == ("toy", "table")
    assert read_source(Source(toys, "target", format="toy")).digest() == dataset.digest()
    assert len(read_source(Source(toys, "target", test=toys))) == 2 * len(dataset)
    assert len(read_features(toys, None, dataset)) == len(dataset)


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


def test_a_format_asked_for_first_may_claim_what_a_general_one_would_take(tmp_path) -> None:
    table().to_csv(tmp_path / "data.csv")
    given = Given(Location.at(str(tmp_path / "data.csv")), "target")
    assert recognise(given).name == "table"
    greedy = Format(
        name="greedy",
        description="anything",
        kind="table",
        recognises=lambda _: True,
        read=TOY.read,
    )
    register_format(greedy)
    try:
        assert recognise(given).name == "greedy"
        assert recognise(given, "table").name == "table"
    finally:
        del registry._FORMATS["greedy"]


def test_two_formats_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="a format 'toy' already"):
        register_format(TOY)


def test_a_folder_that_no_format_knows_is_told_what_each_would_hold(tmp_path) -> None:
    with pytest.raises(BadInput) as error:
        recognise(Given(Location.at(str(tmp_path))))
    assert all(f.folder_holds in str(error.value) for f in FORMATS.values())


LOOKALIKES = (["02139", "2139", "10001"], ["1.50", "1.5", "2.25"], ["TRUE", "FALSE", "TRUE"])


def written_to(frame: pd.DataFrame, path) -> str:
    frame.to_csv(path, index=False) if path.suffix == ".csv" else frame.to_parquet(path)
    return str(path)


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


@pytest.mark.parametrize("values", LOOKALIKES)
def test_categories_that_look_like_numbers_stay_texts_everywhere(tmp_path, values) -> None:
    frame = table().assign(place=values * 50)
    train = written_to(frame, tmp_path / "t.csv")
    other = written_to(frame, tmp_path / "test.csv")
    dataset = read_source(Source(train, "target", categorical=("place",), test=other))
    assert set(dataset.X["place"]) == set(values)
    assert dataset.X["place"].tolist() == values * 100
    new = like_training(read_features(other, None, dataset), dataset.X)
    assert new["place"].tolist() == values * 50


@pytest.mark.parametrize(
    ("trained", "new"), [([1, 2, 3], [1.0, 2.0, None]), ([1.5, 2.0, 3.0], [2.0, 3.0, None])]
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_number_as_category_is_known_with_and_without_its_zero(
    tmp_path, trained, new, suffix
) -> None:
    frame = table().assign(site=trained * 50)
    dataset = read_source(
        Source(written_to(frame, tmp_path / f"t.{suffix}"), "target", categorical=("site",))
    )
    path = written_to(frame.head(3).assign(site=new), tmp_path / "new.parquet")
    made = like_training(read_features(path, None, dataset), dataset.X)["site"]
    assert made.isna().tolist() == [False, False, True]
    assert set(made.dropna()) <= set(dataset.X["site"].cat.categories)


def test_the_same_events_as_csv_and_as_parquet_have_the_same_digest(tmp_path) -> None:
    events, labels = log()
    named = written_to(labels, tmp_path / "labels.csv")
    first, second = (
        read_source(Source(written_to(events, tmp_path / name), labels=named))
        for name in ("log.csv", "log.parquet")
    )
    assert first.X.codes == second.X.codes == ["042", "250.00", "42"]
    assert first.digest() == second.digest()


@pytest.mark.parametrize("ids", ["{:05d}", "{}", "1{:018d}", "-1{}", "P{}"])
@pytest.mark.parametrize("kinds", [("csv", "parquet"), ("parquet", "csv")])
def test_ids_are_the_same_patients_in_any_file(tmp_path, ids, kinds) -> None:
    events, labels = log(ids=ids)
    paths = [
        written_to(frame, tmp_path / f"{name}.{kind}")
        for frame, name, kind in zip((events, labels), ("log", "labels"), kinds, strict=True)
    ]
    dataset = read_source(Source(paths[0], labels=paths[1]))
    assert dataset.X.rows["subject_id"].astype(str).tolist() == labels["patient"].tolist()


def test_ids_with_and_without_leading_zeros_are_different_patients(tmp_path) -> None:
    events, labels = log()
    labels.loc[3, "patient"] = "003"
    paths = written_to(events, tmp_path / "e.parquet"), written_to(labels, tmp_path / "l.csv")
    with pytest.raises(BadInput, match=r"1 labels are of patients .* for instance patient 003"):
        read_source(Source(paths[0], labels=paths[1]))


def test_ids_that_a_gap_made_floats_are_the_same_patients(tmp_path) -> None:
    events, labels = log()
    labels["patient"] = labels["patient"].astype(float)
    paths = written_to(events, tmp_path / "e.parquet"), written_to(labels, tmp_path / "l.csv")
    assert len(read_source(Source(paths[0], labels=paths[1]))) == 20


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
    written_to(conditions, tmp_path / f"condition_occurrence.{suffix}")
    labels = written_to(log()[1], tmp_path / "labels.csv")
    codes = read_source(Source(str(tmp_path), labels=labels)).X.codes
    assert codes == ["CONDITION//SOURCE//042", "CONDITION//SOURCE//42"]


@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_is_spelled_alike_in_every_kind_of_file(tmp_path, gap) -> None:
    values = ["None", gap, "Gd"] * 50
    frame = table().assign(contrast=values, kept=pd.Categorical(values))
    first, second = (
        read_source(Source(written_to(frame, tmp_path / name), "target"))
        for name in ("t.csv", "t.parquet")
    )
    for dataset in (first, second):
        for name in ("contrast", "kept"):
            assert dataset.X[name].isna().sum() == 50
            assert list(dataset.X[name].cat.categories) == ["Gd", "None"]
    assert first.digest() == second.digest()


def test_a_code_that_is_spelled_like_a_gap_is_refused_with_the_reason(tmp_path) -> None:
    events, labels = log(codes=("NA", "K", "CL"))
    paths = written_to(events, tmp_path / "e.csv"), written_to(labels, tmp_path / "l.csv")
    with pytest.raises(BadInput, match=r"20 events without code .*NA, .* count as missing"):
        read_source(Source(paths[0], labels=paths[1]))


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
    dataset = read_source(written_log(tmp_path, times, suffix="csv"))
    assert [codes_of(dataset.X, row) for row in (0, 1)] == [["before"], ["before"]]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_that_are_all_at_midnight_are_dates_which_is_said(tmp_path, zone, caplog) -> None:
    times = pd.to_datetime(["2024-05-01", "2024-05-02"]).tz_localize(zone)
    source = written_log(tmp_path, times)
    dataset = read_source(source)
    assert [codes_of(dataset.X, row) for row in (0, 1)] == [["before"], ["before"]]
    [note] = dataset.notes
    assert "are at midnight, so each counts as the end of its day" in note
    read_features(source.data, source.labels, dataset)
    assert note in caplog.text


def test_dates_of_parquet_are_dates_and_need_no_word(tmp_path) -> None:
    dataset = read_source(written_log(tmp_path, [date(2024, 5, 1), date(2024, 5, 2)]))
    assert codes_of(dataset.X, 0) == ["before"]
    assert dataset.notes == ()


def test_midnight_among_other_times_is_midnight(tmp_path) -> None:
    source = written_log(tmp_path, pd.to_datetime(["2024-05-01T10:00", "2024-05-02T00:00"]))
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
    dataset = read_source(written_log(tmp_path, [date(2024, 5, 1), date(2024, 5, 2)]))
    with pytest.raises(BadInput, match="no file or folder"):
        read_features(str(tmp_path / "missing.csv"), None, dataset)
