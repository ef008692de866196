"""What is left of a budget."""

import pytest

from prefect_tune.optimizers.budget import Budget


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
