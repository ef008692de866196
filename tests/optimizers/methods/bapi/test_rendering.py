from typing import Any

from prefect_tune.optimizers.methods.bapi.declaration import training_lines

NO_END = {"full": 0, "finished": 0, "stopped": 0, "diverged": 0, "left": 0, "failed": 0}
DECISIONS: dict[str, Any] = {
    "t_max": 50,
    "configurations": 40,
    "at_once": 0,
    "epochs": 1_200,
    "spared": 600,
    "ends": {"full": 3, "finished": 5, "stopped": 20, "diverged": 1, "left": 9, "failed": 2},
    "thawed": 7,
    "notes": [],
}


def test_epochs_ends_and_trainings_gone_on_with_are_said() -> None:
    of_all, ends, thawed = training_lines(DECISIONS)
    assert of_all == (
        "40 configurations trained for 1,200 of 2,000 epochs in all; 600 spared by ending early"
    )
    assert ends == (
        "  3 to the end, 5 to where nothing more was expected, 20 stopped as they would not win, "
        "1 diverged, 9 left where they were, 2 failed"
    )
    assert thawed == "  7 trainings gone on with after others were tried"


def test_what_did_not_happen_is_not_said() -> None:
    little = {**DECISIONS, "configurations": 1, "epochs": 10, "spared": 0}
    assert training_lines({**little, "ends": NO_END, "thawed": 0}) == [
        "1 configuration trained for 10 of 50 epochs in all"
    ]
    assert training_lines({**little, "ends": NO_END, "thawed": 1})[-1].startswith("  1 training ")


def test_the_trial_of_one_lucky_epoch_is_said_where_it_is_not_the_answer() -> None:
    lucky = {**DECISIONS, "least": {"trial": 12, "loss": 24.41}}
    assert training_lines(lucky)[2] == (
        "  trial 12 has the least loss at one epoch, 24.41; the answer has the least mean over "
        "neighbouring epochs"
    )


def test_full_fits_are_told_apart() -> None:
    assert training_lines({**DECISIONS, "at_once": 3})[1] == (
        "  3 others fitted at once, as their models have no epochs"
    )


def test_before_anything_is_told_nothing_is_said() -> None:
    assert training_lines({**DECISIONS, "configurations": 0}) == []
    assert training_lines({}) == []
