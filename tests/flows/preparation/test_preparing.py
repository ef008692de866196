"""What is checked, decided and said before a study starts."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import CommandLine
from inputs import write_meds, write_omop_log, write_synthea_log, write_table
from studies import ITERATIVE_SPACES

from prefect_tune.flows.preparation.options import OPTIONS
from prefect_tune.flows.preparation.prepare import prepare
from prefect_tune.flows.preparation.settings import TuneSettings
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.study import Study
from prefect_tune.optimizers.racing import rules as stretches
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.portfolios import portfolio_of
from prefect_tune.tasks.catalogue.spaces import space_named
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


SPACE = space_named("small")


KNOWN = [default_configuration(SPACE, path).to_json() for path in list(SPACE.paths())[:3]]


@pytest.fixture
def given(tmp_path):
    """Parameters of a study of a table, with a file to begin with."""
    table = write_table(tmp_path)

    def given(start: object, **more: object) -> dict[str, object]:
        file = tmp_path / "start.json"
        file.write_text(start if isinstance(start, str) else json.dumps(start))
        return {"target": "target", "space": "small", "start": str(file), **more}

    given.table = table
    return given


def test_configurations_and_trials_of_a_file_are_begun_with(prepared, given) -> None:
    trials = [{"number": 4, "query": {"configuration": KNOWN[1]}}]
    plan = prepared("train.csv", **given([KNOWN[0], *trials, KNOWN[2]])).plan
    assert list(plan.start) == KNOWN


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("{", r"--start .*start.json: Expecting"),
        ([], "its list is empty; write a JSON list of configurations"),
        ({"rescale": 1}, "it has no list"),
        ([KNOWN[0], 7], "entry 2 is no configuration: 7; write a JSON list"),
        ([None], "entry 1 is no configuration: null"),
        ([{**KNOWN[0], "fit model": {"algorithm": "forest"}}], "entry 1: unknown .*'forest'"),
        ([{"fit model": KNOWN[0]["fit model"]}], "entry 1: a configuration of space 'small' has"),
        ([{**KNOWN[0], "fit model": {}}], "entry 1: no 'algorithm'"),
        (
            [{**KNOWN[0], "fit model": {"algorithm": "k_nearest", "hyperparameters": {"p": 9}}}],
            "entry 1: algorithm 'k_nearest' of step 'fit model' takes the values of",
        ),
    ],
)
def test_what_is_wrong_in_a_file_is_named(prepared, given, start, message) -> None:
    with pytest.raises(BadInput, match=message):
        prepared("train.csv", **given(start))


def test_neither_a_file_nor_a_study_is_named(prepared) -> None:
    with pytest.raises(BadInput, match="--start nothing: there is no such file, and unknown study"):
        prepared("train.csv", target="target", start="nothing")


MODERN = [c.to_json() for c in portfolio_of(space_named("modern"))]


@pytest.mark.parametrize(
    ("options", "begins_with"),
    [
        ({}, MODERN),
        ({"race": True}, MODERN),
        ({"start": "none"}, []),
        ({"option": {"variant": "paper"}}, []),
        ({"method": "smac"}, []),
        ({"method": "smac", "start": "portfolio"}, MODERN),
    ],
)
def test_flash_begins_with_the_portfolio_of_its_space_and_others_when_told(
    prepared, given, options, begins_with
) -> None:
    parameters = {**given([]), "space": "modern", "start": None, **options}
    assert list(prepared("train.csv", **parameters).plan.start) == begins_with


def test_a_space_without_a_portfolio_says_so(prepared, given) -> None:
    with pytest.raises(BadInput, match="--start portfolio: space 'small' has no portfolio"):
        prepared("train.csv", **{**given([]), "start": "portfolio"})


def test_a_method_that_takes_none_says_so(prepared, given) -> None:
    with pytest.raises(BadInput, match=r"'hyperband' cannot begin with.*; leave it out"):
        prepared("train.csv", **given(KNOWN, method="hyperband", option={"fidelity": "folds"}))


def test_a_study_goes_on_with_what_it_began_with_and_takes_no_other(prepared, given) -> None:
    first = given(KNOWN, study="one")
    plan = prepared("train.csv", **first).plan
    Path(first["start"]).unlink()
    assert prepared("train.csv", **first).plan.start == plan.start
    with pytest.raises(BadInput, match="--start"):
        prepared("train.csv", **{**first, "start": "another.json"})


@pytest.mark.slow
@pytest.mark.usefixtures("server")
def test_a_search_begins_with_a_file_and_then_with_the_best_of_a_study(tmp_path) -> None:
    table, file = write_table(tmp_path), tmp_path / "start.json"
    file.write_text(json.dumps(KNOWN))
    command = CommandLine(tmp_path / "home")
    options = ("run", table, "--target", "target", "--space", "small", "--workers", 1, "--no-race")
    assert command(*options, "--start", file, "--study", "one", "--trials", 5).exit_code == 0
    assert command(*options, "--start", "one", "--study", "two", "--trials", 5).exit_code == 0
    ledger = Ledger(ArtifactStore(StoreAddress(str(tmp_path / "home" / "store"))).database)
    one, two = (
        [t["query"]["configuration"] for t in sorted(ledger.trials(s), key=lambda t: t["number"])]
        for s in ("one", "two")
    )
    losses = {t["number"]: t["evaluation"]["loss"] for t in ledger.trials("one")}
    assert one[:3] == KNOWN
    assert two == [one[number] for number in sorted(losses, key=losses.__getitem__)]
