"""What is checked, decided and said before a study starts."""

import numpy as np
import pytest
from inputs import table, write_meds, write_omop_log, write_synthea_log

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.plan import Prepared, prepare
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import LEARN, load_split


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PREFECT_TUNE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    frame = table().assign(patient=np.arange(150) // 2)
    frame[:100].to_csv("train.csv", index=False)
    frame[100:].to_parquet("test.parquet", index=False)


def prepared(data: str, **options: object) -> Prepared:
    return prepare(TuneSettings.parse({**dict.fromkeys(OPTIONS), "data": data, **options}))


def test_rows_are_split_as_the_options_say() -> None:
    study = prepared(
        "train.csv", target="target", group="patient", test="test.parquet", holdout=0.3
    )
    problem = find_study(study.store, study.study).problem
    dataset = load_dataset(study.store, problem["dataset"])
    split = load_split(study.store, problem["split"])
    assert split.held_out(1000).tolist() == list(range(100, 150))
    assert set(np.unique(split.fold)) == {LEARN, -1, 0}
    assert (split.fold == 0).sum() == pytest.approx(30, abs=4)
    for group in np.unique(dataset.groups):
        assert len(set(split.fold[dataset.groups == group])) == 1


@pytest.mark.parametrize(
    ("write", "labels", "said"),
    [
        (write_meds, "labels/task", "a MEDS data set"),
        (write_omop_log, "labels.csv", "tables of the OMOP common data model"),
        (write_synthea_log, "labels.csv", "a CSV export of Synthea"),
    ],
)
def test_what_the_data_is_taken_for_is_said(tmp_path, write, labels, said) -> None:
    study = prepared(str(write(tmp_path / "data")), labels=labels)
    assert f"data is taken for {said} (--format overrides): 80 rows" in study.notes[0]


def test_what_the_user_said_it_is_is_not_said_to_be_found_out() -> None:
    study = prepared("train.csv", target="target", format="table")
    assert "train is taken for a table: 100 rows" in study.notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "test.parquet", "test_size": 0.2}, "--test test.parquet with --test-size 0.2"),
        ({"folds": 3, "holdout": 0.2}, "--folds 3 with --holdout 0.2: take one of them"),
    ],
)
def test_of_two_ways_to_say_the_same_one_is_taken(options, message) -> None:
    with pytest.raises(BadInput, match=message):
        prepared("train.csv", target="target", **options)


@pytest.mark.parametrize("options", [{"folds": 3}, {"holdout": 0.2}, {"test": "test.parquet"}])
def test_a_study_is_not_continued_with_another_split(options) -> None:
    given = {"target": "target", "drop": ["patient"], "study": "one"}
    prepared("train.csv", **given, holdout=0.3)
    assert prepared("train.csv", **given, holdout=0.3).notes == ("continues study one",)
    with pytest.raises(BadInput, match="choose another --study name"):
        prepared("train.csv", **given, **options)
