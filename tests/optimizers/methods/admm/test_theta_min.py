"""Theta-min: the next hyperparameters of one path."""

from typing import Any

import numpy as np
import pytest
from ConfigSpace import ConfigurationSpace, Float, Integer
from ConfigSpace.hyperparameters import Hyperparameter
from flash_worlds import counted_space
from worlds import told

from prefect_tune.optimizers import Admm, Algorithm, Budget, Objective, Query, Space, Step
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.positions import Positions
from prefect_tune.optimizers.methods.admm.state import AdmmState
from prefect_tune.optimizers.methods.admm.theta_min import ThetaMin
from prefect_tune.optimizers.space.candidate_space import Candidates

UNIT = Objective("share", "", 0.0, 1.0)
POINTS = Objective("points", "", 0.0, 128.0)


def asked_for(
    objective: Objective, scale: float, failure: float | None = None, **options: object
) -> list[Query]:
    """Twenty queries of one path; small numbers fail, or have that loss, and 0.3 is best."""
    optimizer = Admm(counted_space((1,), 2), 0, objective, **options)
    for number in range(20):
        query = optimizer.ask(Budget(trials_left=20 - number))
        values = [float(v) for _, v in query.configuration.choices[0][1].values]
        loss = sum((v - 0.3) ** 2 for v in values) / 2
        optimizer.tell(told(number, query, failure if min(values) < 0.25 else scale * loss))
    return [t.query for t in optimizer.history]


@pytest.mark.parametrize("failure_cost", ["bound", "worst"])
@pytest.mark.parametrize("theta_solver", ["bo", "smac", "trust_region"])
def test_losses_in_points_and_as_shares_give_the_same_queries(
    theta_solver: str, failure_cost: str
) -> None:
    options = {"theta_solver": theta_solver, "failure_cost": failure_cost}
    assert asked_for(UNIT, 1.0, **options) == asked_for(POINTS, 128.0, **options)


def test_the_forest_takes_a_failure_for_the_bound_of_the_metric() -> None:
    options = {"theta_solver": "smac", "failure_cost": "bound"}
    failing = asked_for(POINTS, 128.0, **options)
    assert failing == asked_for(POINTS, 128.0, failure=128.0, **options)


def one_algorithm(*numbers: Hyperparameter[Any, Any]) -> Space:
    values = ConfigurationSpace(space=list(numbers))
    return Space("one", (Step("s", (Algorithm(id="a", estimator="x.Y", hyperparameters=values),)),))


def values_asked_for(space: Space, best: float, n: int, **options: object) -> list[float]:
    """The first hyperparameter of n queries, whose loss is the square of its way to the best."""
    optimizer = Admm(space, 0, UNIT, effort=40, **options)
    values = []
    for number in range(n):
        query = optimizer.ask(Budget(trials_left=n - number))
        values.append(float(query.configuration.choices[0][1].values[0][1]))
        optimizer.tell(told(number, query, ((values[-1] - best) / 100) ** 2))
    return values


def test_integers_are_pulled_to_where_they_stand_by_their_weight() -> None:
    space = one_algorithm(Integer("k", (1, 100), default=20))
    free = values_asked_for(space, 80.0, 16, rho=0.0)
    held = values_asked_for(space, 80.0, 16, rho=500.0)
    assert min(abs(k - 80) for k in free[4:]) <= 2
    assert all(abs(k - 20) <= 4 for k in held[4:10])


@pytest.mark.parametrize("theta_solver", ["bo", "trust_region"])
def test_with_a_twin_under_way_another_point_is_asked_for(theta_solver: str) -> None:
    space = one_algorithm(Float("x", (0.0, 100.0), default=50.0))
    optimizer = Admm(space, 0, UNIT, effort=40, theta_solver=theta_solver)
    for number in range(8):
        query = optimizer.ask(Budget(trials_left=40))
        x = float(query.configuration.choices[0][1].values[0][1])
        optimizer.tell(told(number, query, abs(x - 30) / 100))
    asked = [optimizer.ask(Budget(trials_left=40)) for _ in range(3)]
    values = sorted(float(q.configuration.choices[0][1].values[0][1]) for q in asked)
    assert min(np.diff(values)) > 0.05


def theta_min() -> ThetaMin:
    space = one_algorithm(Float("x", (0.0, 1.0)), Float("y", (0.0, 1.0)), Integer("z", (1, 9)))
    options = AdmmOptions().resolved()
    return ThetaMin(space, UNIT, options, Positions(space, options))


def region(values: list[float], started_at: int = 0) -> list[tuple[float, float]]:
    """The box around the middle of the cube after trials of these values."""
    best = Candidates(np.zeros((1, 1), dtype=np.intp), np.full((1, 3), 0.5))
    state = AdmmState(path=("a",), started_at=started_at)
    lower, upper = theta_min()._region(best, np.array(values), list(range(len(values))), state)
    return [(round(float(a), 9), round(float(b), 9)) for a, b in zip(lower, upper, strict=True)]


def test_the_trust_region_doubles_after_a_success_and_halves_after_failures() -> None:
    whole = (0.0, 1.0)  # integers are not held: their cells are too wide
    assert region([0.5]) == [(0.3, 0.7), (0.3, 0.7), whole]
    assert region([0.5, 0.4]) == [(0.1, 0.9), (0.1, 0.9), whole]
    assert region([0.5, 0.4, 0.3]) == [whole, whole, whole]
    assert region([0.5, 0.6, 0.6]) == region([0.5])
    assert region([0.5, 0.6, 0.6, 0.6]) == [(0.4, 0.6), (0.4, 0.6), whole]
    assert region([0.5, 0.6, 0.6, 0.4, 0.6]) == region([0.5, 0.4])
    assert region([0.5] + 60 * [0.6])[0] == (0.495, 0.505)


def test_the_trust_region_counts_the_trials_of_this_theta_min_only() -> None:
    assert region([0.5, 0.4, 0.3], started_at=2) == region([0.5, 0.4])
    assert region([0.5, 0.4, 0.3], started_at=3) == region([0.5])


def test_with_a_trust_region_proposals_stay_near_the_best() -> None:
    """Where the middle is the best, and all else is better the further away it is."""
    space = one_algorithm(Float("x", (0.0, 100.0), default=50.0))
    asked = {}
    for theta_solver in ("bo", "trust_region"):
        optimizer = Admm(space, 0, UNIT, effort=40, theta_solver=theta_solver)
        values = []
        for number in range(12):
            query = optimizer.ask(Budget(trials_left=40))
            values.append(float(query.configuration.choices[0][1].values[0][1]))
            way = abs(values[-1] - 50.0)
            optimizer.tell(told(number, query, 0.9 - way / 100 if way else 0.0))
        asked[theta_solver] = [abs(x - 50.0) for x in values[4:]]
    assert max(asked["bo"]) > 20.0
    assert max(asked["trust_region"]) <= 20.0 + 1e-6


def test_before_four_points_of_a_path_random_ones_are_asked_for() -> None:
    space = one_algorithm(Float("x", (0.0, 100.0), default=50.0))
    early = [values_asked_for(space, best, 5, theta_solver="bo") for best in (0.0, 100.0)]
    assert early[0][:4] == early[1][:4]
    assert early[0][4] != early[1][4]
