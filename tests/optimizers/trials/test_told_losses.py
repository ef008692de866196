import numpy as np
import pytest
from worlds import mixed_space, told

from prefect_tune.optimizers import History, Objective, Query
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.losses import log_losses, told_losses
from prefect_tune.optimizers.trials.objective import FailureCost

PATH = ("unit", "svm")
QUERY = Query(default_configuration(mixed_space(), PATH))


def history(*losses: float | None) -> History:
    made = History()
    for number, loss in enumerate(losses):
        made.record(told(number, QUERY, loss))
    return made


@pytest.mark.parametrize(
    ("rule", "objective", "expected"),
    [
        ("bound", Objective(), 100.0),
        ("bound", Objective(upper=float("inf")), 30.0),
        ("worst", Objective(), 30.0),
        ("chance", Objective(chance=65.0), 65.0),
        ("chance", Objective(), 30.0),
    ],
)
def test_a_failed_trial_has_the_loss_that_the_rule_says(
    rule: FailureCost, objective: Objective, expected: float
) -> None:
    trials, losses = told_losses(history(20.0, None, 30.0), objective, rule)
    assert [t.number for t in trials] == [0, 1, 2]
    assert losses.tolist() == [20.0, expected, 30.0]


@pytest.mark.parametrize("losses", [[], [5.0, 5.0], [0.0, 0.0], [0.0, 1e-12, 90.0]])
def test_logarithms_are_finite_and_keep_the_order(losses: list[float]) -> None:
    logs = log_losses(np.array(losses), Objective())
    assert np.isfinite(logs).all()
    assert (np.diff(logs) >= 0).all()


def test_without_a_smallest_loss_nothing_is_transformed() -> None:
    losses = np.array([-3.0, 4.0])
    assert log_losses(losses, Objective(lower=float("-inf"))) is losses


def test_logarithms_are_of_the_distance_from_the_least_loss_and_a_hundredth_of_the_median() -> None:
    losses = np.array([10.0, 12.0, 60.0])
    assert log_losses(losses, Objective(lower=10.0)) == pytest.approx(np.log([0.02, 2.02, 50.02]))
