"""What is left of a budget, and how many trials it holds."""

import pytest
from worlds import evaluation, mixed_space

from prefect_tune.optimizers import Budget, History, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.history import capacity

BAYES = Query(default_configuration(mixed_space(), ("unit", "bayes")))


def history_of(*seconds: float) -> History:
    history = History()
    for number, cost in enumerate(seconds):
        history.record(Trial(number, BAYES).started().completed(evaluation(1.0, cost)))
    return history


@pytest.mark.parametrize(
    ("budget", "seconds", "expected"),
    [
        (Budget(), (1.0,) * 9, None),
        (Budget(trials_left=7), (), 7),
        (Budget(trials_left=7), (1.0,) * 3, 10),
        (Budget(seconds_left=10.0), (1.0,) * 4, None),
        (Budget(seconds_left=10.0), (9.0, 9.0, 2.0, 2.0, 2.0), 10),
        (Budget(seconds_left=10.0, ask_seconds=15.0), (9.0, 9.0, 2.0, 2.0, 2.0), 7),
        (Budget(seconds_left=-3.0), (2.0,) * 5, 5),
        (Budget(trials_left=2, seconds_left=10.0), (2.0,) * 5, 7),
    ],
)
def test_what_ends_first_counts_once_trials_are_warm(budget, seconds, expected) -> None:
    assert capacity(budget, history_of(*seconds)) == expected


@pytest.mark.parametrize(
    ("budget", "share"),
    [
        (Budget(), 1.0),
        (Budget(trials_spent=30, trials_left=10), 0.25),
        (Budget(seconds_spent=10.0, seconds_left=30.0), 0.75),
        (Budget(trials_spent=30, trials_left=10, seconds_spent=10.0, seconds_left=30.0), 0.25),
        (Budget(trials_left=0), 0.0),
        (Budget(seconds_spent=10.0, seconds_left=-2.0), 0.0),
    ],
)
def test_the_share_that_is_left_is_that_of_what_ends_it_first(budget, share) -> None:
    assert budget.share_left == pytest.approx(share)
