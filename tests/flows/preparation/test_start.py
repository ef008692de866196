"""`--start`: a file or an earlier study gives the configurations that a study begins with."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from inputs import write_table

from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.catalogue.portfolios import portfolio_of
from prefect_tune.tasks.catalogue.spaces import space_named

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
