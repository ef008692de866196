"""What is checked, decided and said before a study starts."""

from dataclasses import replace

import numpy as np
import pytest
from inputs import table, write_meds, write_omop_log, write_synthea_log

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.prepare import PreparedStudy, prepare
from prefect_tune.flows.preparation.resume import CannotContinue
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import Execution, StopRule
from prefect_tune.storage import Ledger
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


def prepared(data: str, **options: object) -> PreparedStudy:
    return prepare(TuneSettings.parse({**dict.fromkeys(OPTIONS), "data": data, **options}))


def test_rows_are_split_as_the_options_say() -> None:
    study = prepared(
        "train.csv", target="target", group="patient", test="test.parquet", holdout=0.3
    )
    problem = find_study(study.store, study.name).problem
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
    assert f"data is taken for {said} (--format overrides): 80 rows" in str(study.notes[0])


def test_what_the_user_said_it_is_is_not_said_to_be_found_out() -> None:
    study = prepared("train.csv", target="target", format="table")
    assert "train is taken for a table: 100 rows" in str(study.notes[0])


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
    assert prepared("train.csv", **given, holdout=0.3).name == "one"
    with pytest.raises(BadInput, match="choose another --study name"):
        prepared("train.csv", **given, **options)


def test_a_study_that_was_just_entered_is_prepared_again_without_reading_or_remarks() -> None:
    """A command prepares a study, and its flow prepares it again by its name."""
    given = {"target": "target", "drop": ["patient"], "constraint": ["latency_us<=1e6"]}
    first = prepared("train.csv", **given, trials=7, seed=5)
    again = prepare(
        TuneSettings.parse(
            {
                **dict.fromkeys(OPTIONS), "data": "train.csv", **given, "trials": 7, "seed": 5,
                "study": first.name,
            }
        ),
        read=lambda _: pytest.fail("the input was read again"),
    )  # fmt: skip
    assert again.plan == first.plan
    assert len(first.notes) > 1
    assert again.notes == ()


def test_a_study_that_has_run_is_said_to_be_continued() -> None:
    given = {"target": "target", "drop": ["patient"], "study": "one"}
    first = prepared("train.csv", **given)
    begun = replace(first.plan, flow_run_id="0").to_json()
    Ledger(first.store.database).update_study("one", settings=begun)
    assert list(map(str, prepared("train.csv", **given).notes)) == ["continues study one"]


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"trials": 9}, "stop_rule", StopRule(9, None)),
        ({"budget": "5m"}, "stop_rule", StopRule(None, 300.0)),
        ({}, "stop_rule", StopRule(4, 60.0)),
        ({"trial_timeout": "7s"}, "trial_seconds", 7.0),
        ({"trial_memory": "2GB"}, "trial_memory_bytes", 2 * 10**9),
        ({"ensemble": 3}, "ensemble", 3),
        ({}, "ensemble", 2),
        ({"no_cache": True}, "use_cache", False),
        ({"workers": 3}, "execution", Execution(workers=3)),
    ],
)
def test_what_may_change_in_the_life_of_a_study_changes_when_it_is_given(
    options, field, value
) -> None:
    given = {"target": "target", "drop": ["patient"], "study": "one"}
    prepared("train.csv", **given, trials=4, budget="1m", ensemble=2, trial_timeout="5s")
    assert getattr(prepared("train.csv", **given, **options).plan, field) == value


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({"seed": 1}, "--seed 0"),
        ({"method": "tpe"}, "--method flash"),
        ({"metric": "auroc"}, "--metric error"),
        ({"space": "small"}, "--space flash"),
        ({"folds": 4}, "--folds 3"),
        ({"test_size": 0.3}, "--test-size 0.2"),
        ({"option": {"r": 3}}, "the options {}"),
    ],
)
def test_what_may_not_change_is_refused_with_what_the_study_has(options, flag) -> None:
    given = {"target": "target", "drop": ["patient"], "study": "one"}
    prepared("train.csv", **given)
    with pytest.raises(CannotContinue, match=flag) as refused:
        prepared("train.csv", **given, **options)
    assert refused.value.remedy == "choose another --study name"
