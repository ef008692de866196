"""Codes, ids and categories that look like numbers, and texts that look like gaps."""

import numpy as np
import pandas as pd
import pytest
from inputs import table

from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.reading import read_features, read_source
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.data.table import like_training
from prefect_tune.tasks.data.table_files import GAPS

LOOKALIKES = (["02139", "2139", "10001"], ["1.50", "1.5", "2.25"], ["TRUE", "FALSE", "TRUE"])


def written(frame: pd.DataFrame, path) -> str:
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
    train = written(frame, tmp_path / "t.csv")
    other = written(frame, tmp_path / "test.csv")
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
        Source(written(frame, tmp_path / f"t.{suffix}"), "target", categorical=("site",))
    )
    path = written(frame.head(3).assign(site=new), tmp_path / "new.parquet")
    made = like_training(read_features(path, None, dataset), dataset.X)["site"]
    assert made.isna().tolist() == [False, False, True]
    assert set(made.dropna()) <= set(dataset.X["site"].cat.categories)


def test_the_same_events_as_csv_and_as_parquet_have_the_same_digest(tmp_path) -> None:
    events, labels = log()
    named = written(labels, tmp_path / "labels.csv")
    first, second = (
        read_source(Source(written(events, tmp_path / name), labels=named))
        for name in ("log.csv", "log.parquet")
    )
    assert first.X.codes == second.X.codes == ["042", "250.00", "42"]
    assert first.digest() == second.digest()


@pytest.mark.parametrize("ids", ["{:05d}", "{}", "1{:018d}", "-1{}", "P{}"])
@pytest.mark.parametrize("kinds", [("csv", "parquet"), ("parquet", "csv")])
def test_ids_are_the_same_patients_in_any_file(tmp_path, ids, kinds) -> None:
    events, labels = log(ids=ids)
    paths = [
        written(frame, tmp_path / f"{name}.{kind}")
        for frame, name, kind in zip((events, labels), ("log", "labels"), kinds, strict=True)
    ]
    dataset = read_source(Source(paths[0], labels=paths[1]))
    assert dataset.X.rows["subject_id"].astype(str).tolist() == labels["patient"].tolist()


def test_ids_with_and_without_leading_zeros_are_different_patients(tmp_path) -> None:
    events, labels = log()
    labels.loc[3, "patient"] = "003"
    paths = written(events, tmp_path / "e.parquet"), written(labels, tmp_path / "l.csv")
    with pytest.raises(BadInput, match=r"1 labels are of patients .* for instance patient 003"):
        read_source(Source(paths[0], labels=paths[1]))


def test_ids_that_a_gap_made_floats_are_the_same_patients(tmp_path) -> None:
    events, labels = log()
    labels["patient"] = labels["patient"].astype(float)
    paths = written(events, tmp_path / "e.parquet"), written(labels, tmp_path / "l.csv")
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
    written(conditions, tmp_path / f"condition_occurrence.{suffix}")
    labels = written(log()[1], tmp_path / "labels.csv")
    codes = read_source(Source(str(tmp_path), labels=labels)).X.codes
    assert codes == ["CONDITION//SOURCE//042", "CONDITION//SOURCE//42"]


@pytest.mark.parametrize("gap", GAPS)
def test_a_gap_is_spelled_alike_in_every_kind_of_file(tmp_path, gap) -> None:
    values = ["None", gap, "Gd"] * 50
    frame = table().assign(contrast=values, kept=pd.Categorical(values))
    first, second = (
        read_source(Source(written(frame, tmp_path / name), "target"))
        for name in ("t.csv", "t.parquet")
    )
    for dataset in (first, second):
        for name in ("contrast", "kept"):
            assert dataset.X[name].isna().sum() == 50
            assert list(dataset.X[name].cat.categories) == ["Gd", "None"]
    assert first.digest() == second.digest()


def test_a_code_that_is_spelled_like_a_gap_is_refused_with_the_reason(tmp_path) -> None:
    events, labels = log(codes=("NA", "K", "CL"))
    paths = written(events, tmp_path / "e.csv"), written(labels, tmp_path / "l.csv")
    with pytest.raises(BadInput, match=r"20 events without code .*NA, .* count as missing"):
        read_source(Source(paths[0], labels=paths[1]))
