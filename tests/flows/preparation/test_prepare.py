"""What is checked, decided and said before a study starts."""

import numpy as np
import pytest
from inputs import write_meds, write_omop_log, write_synthea_log
from studies import ITERATIVE_SPACES

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.prepare import prepare
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers.racing import rules as stretches
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.data.dataset import load_dataset
from prefect_tune.tasks.data.split import LEARN, load_split


def test_rows_are_split_as_the_options_say(prepared) -> None:
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
def test_what_the_data_is_taken_for_is_said(prepared, tmp_path, write, labels, said) -> None:
    study = prepared(str(write(tmp_path / "data")), labels=labels)
    assert f"reading data as {said} (override with --format): 80 rows" in str(study.notes[0])


def test_what_the_user_said_it_is_is_not_said_to_be_found_out(prepared) -> None:
    study = prepared("train.csv", target="target", format="table")
    assert "reading train as a table: 100 rows" in str(study.notes[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "test.parquet", "test_size": 0.2}, "--test test.parquet with --test-size 0.2"),
        ({"folds": 3, "holdout": 0.2}, "--folds 3 with --holdout 0.2: use only one of them"),
        (
            {"race": True, "holdout": 0.2},
            "a race needs 2 folds or more, or more than 20,000 training",
        ),
    ],
)
def test_of_two_ways_to_say_the_same_one_is_taken(prepared, options, message) -> None:
    with pytest.raises(BadInput, match=message):
        prepared("train.csv", target="target", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 4}, "--epochs 4: a curve of fewer than 5 epochs says little; name 5 or more"),
        ({"epochs": 1001}, "--epochs 1001: must be at most 1000"),
        (
            {"epochs": 10, "space": "svm"},
            r"no model of space 'svm' trains in epochs \(SVC\); .*MLPC",
        ),
        (
            {"epochs": 10, "space": "mlp"},
            r"\(layerwise_mlp\); .*; take --space modern, or search without --epochs",
        ),
    ],
)
def test_epochs_that_no_model_can_have_are_refused(prepared, options, message) -> None:
    with pytest.raises(BadInput, match=message):
        prepared("train.csv", target="target", **options)


def test_a_method_knows_which_models_train_in_epochs(prepared) -> None:
    for epochs, known in ((None, set()), (10, {"extra_trees"})):
        study = prepared("train.csv", target="target", space="small", epochs=epochs)
        objective = Study(study.store, study.name).optimizer.objective
        assert (objective.epochs, objective.iterative) == (epochs, known)


def test_a_study_that_is_there_is_prepared_again_without_reading_its_input(prepared) -> None:
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


def test_a_value_of_an_option_that_a_method_does_not_take_is_refused_by_its_name(prepared) -> None:
    with pytest.raises(BadInput, match="--option: r must be a whole number; got 'x'"):
        prepared("train.csv", target="target", drop=["patient"], option={"r": "x"})


def test_a_race_without_a_cache_is_said_to_run_first_folds_twice(prepared) -> None:
    given = {"target": "target", "drop": ["patient"], "race": True}
    assert "runs its first fold again" in " ".join(
        map(str, prepared("train.csv", **given, no_cache=True).notes)
    )
    assert "first fold" not in " ".join(map(str, prepared("train.csv", **given).notes))


def test_hold_out_rows_race_where_there_are_many_rows(prepared, monkeypatch) -> None:
    monkeypatch.setattr(stretches, "LARGE", 50)
    monkeypatch.setattr(stretches, "_LOOK", 20)
    monkeypatch.setattr(stretches, "_LOOK_RAREST", 2)
    given = {"target": "target", "drop": ["patient"], "holdout": 0.2, "no_cache": True}
    raced = prepared("train.csv", **given)
    assert raced.plan.race
    assert "first fold" not in " ".join(map(str, raced.notes))
    assert not prepared("train.csv", **given, race=False).plan.race


def test_a_model_whose_values_leave_it_without_epochs_is_said_with_the_reason(
    prepared, tmp_path
) -> None:
    (tmp_path / "space.py").write_text(ITERATIVE_SPACES)
    given = {"target": "target", "drop": ["patient"], "space": f"{tmp_path / 'space.py'}:classes"}
    notes = " ".join(map(str, prepared("train.csv", **given, epochs=10).notes))
    said = "lbfgs: MLPClassifier with solver='lbfgs' makes no passes to stop after"
    assert f"fitted at once, without epochs: {said}" in notes
    assert "models do not train in epochs and are fitted in full at once: lbfgs, nei" in notes
    assert "at once" not in " ".join(map(str, prepared("train.csv", **given).notes))


def test_a_method_of_stretches_without_a_cache_is_said_to_train_again(prepared) -> None:
    given = {"target": "target", "drop": ["patient"], "trials": 99}
    for method, no_cache, is_said in (
        ("halving", True, True),
        ("halving", False, False),
        ("random", True, False),
    ):
        study = prepared("train.csv", **given, method=method, no_cache=no_cache)
        assert ("trained again from its start" in " ".join(map(str, study.notes))) == is_said


@pytest.mark.parametrize("method", ["halving", "hyperband", "bohb"])
def test_fewer_trials_than_a_bracket_are_said_before_the_start(prepared, method) -> None:
    given = {"target": "target", "drop": ["patient"], "method": method}
    option = {"fidelity": "folds"}
    (note,) = [
        n
        for n in prepared("train.csv", **given, option=option, trials=2).notes
        if n.option == "trials"
    ]
    assert str(note).startswith(f"method {method} begins 3 configurations before one is run in")
    enough = prepared("train.csv", **given, option=option, trials=3)
    assert "before one is run" not in " ".join(map(str, enough.notes))
