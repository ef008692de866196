"""Theta-min: the next hyperparameters of one path."""

import pytest
from flash_worlds import counted_space
from worlds import told

from prefect_tune.optimizers import Admm, Budget, Objective, Query

UNIT = Objective("share", "", 0.0, 1.0)
POINTS = Objective("points", "", 0.0, 128.0)


def asked_for(objective: Objective, scale: float, **options: object) -> list[Query]:
    """Twenty queries of one path; small numbers fail, and 0.3 is best."""
    optimizer = Admm(counted_space((1,), 2), 0, objective, **options)
    for number in range(20):
        query = optimizer.ask(Budget(trials_left=20 - number))
        values = [float(v) for _, v in query.configuration.choices[0][1].values]
        loss = sum((v - 0.3) ** 2 for v in values) / 2
        optimizer.tell(told(number, query, None if min(values) < 0.25 else scale * loss))
    return [t.query for t in optimizer.history]


@pytest.mark.parametrize("failure_cost", ["bound", "worst"])
@pytest.mark.parametrize("theta_solver", ["bo", "smac", "trust_region"])
def test_losses_in_points_and_as_shares_give_the_same_queries(
    theta_solver: str, failure_cost: str
) -> None:
    options = {"theta_solver": theta_solver, "failure_cost": failure_cost}
    assert asked_for(UNIT, 1.0, **options) == asked_for(POINTS, 128.0, **options)
