"""The two minimisations of ADMM: theta, the hyperparameters of a path, and z, the path."""

import numpy as np
import pytest
from ConfigSpace import Float, Integer
from flash_worlds import counted_space
from worlds import one_algorithm, ordered_space, told

from prefect_tune.optimizers import Admm, Budget, Objective, Query, Space
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.state import AdmmState, Positions
from prefect_tune.optimizers.methods.admm.theta_min import ThetaMin
from prefect_tune.optimizers.methods.admm.z_min import PathArms
from prefect_tune.optimizers.paths import table as path_table
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


@pytest.mark.slow
@pytest.mark.parametrize("failure_cost", ["bound", "worst"])
@pytest.mark.parametrize("theta_solver", ["bo", "smac", "trust_region"])
def test_losses_in_points_and_as_shares_give_the_same_queries(
    theta_solver: str, failure_cost: str
) -> None:
    options = {"theta_solver": theta_solver, "failure_cost": failure_cost}
    assert asked_for(UNIT, 1.0, **options) == asked_for(POINTS, 128.0, **options)


@pytest.mark.slow
def test_the_forest_takes_a_failure_for_the_bound_of_the_metric() -> None:
    options = {"theta_solver": "smac", "failure_cost": "bound"}
    failing = asked_for(POINTS, 128.0, **options)
    assert failing == asked_for(POINTS, 128.0, failure=128.0, **options)


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


def test_with_no_rewards_left_the_arm_that_earned_most_is_drawn_most() -> None:
    table = PathArms(counted_space((3,)), 0)
    # Three successes in five: Beta(13, 12), mean .52 and deviation .09798; Beta(10, 10) .109109.
    counts = {"step0/a0": [5, 3], "step0/a1": [0, 0], "step0/a2": [4, 0]}

    class Recorded:
        def beta(self, a, b):
            assert list(a) == [13, 10, 10]
            assert list(b) == [12, 10, 14]
            return np.random.RandomState(0).beta(a, b)

    assert table.thompson(counts, 10.0, Recorded()) == ("a1",)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    drawn = [table.thompson({"step0/a0": [500, 490]}, 10.0, rng)[0] for _ in range(50)]
    assert drawn.count("a0") == 50


def test_an_order_is_an_assignment_of_steps_to_places() -> None:
    space = ordered_space()
    table = PathArms(space, 0)
    weights = dict.fromkeys(table.arms, 0.0)
    omega = [[0.5, 0.9, 0.2], [0.8, 0.85, 0.1], [0.3, 0.4, 0.6]]
    for name, row in zip("abc", omega, strict=True):
        for place, value in enumerate(row):
            weights[f"order/{name}@{place}"] = value
    for name in "abc":
        weights[f"{name}/scale"] = 1.0
    path = table.least(-np.array([weights[arm] for arm in table.arms]))
    # The best place of each row alone, (1, 1, 2), is not an order.
    assert path == ("b_before_a_before_c", "scale", "scale", "scale", "tree")
    assert table.arms_of(path)[:3] == ["order/b@0", "order/a@1", "order/c@2"]


def test_the_linear_solver_learns_additive_paths() -> None:
    space = counted_space((4, 5))
    table = PathArms(space, 0)
    values = {p: int(p[0][1:]) + 0.5 * int(p[1][1:]) for p in list(space.paths())[::2]}
    model = table.linear(values)
    rng = np.random.default_rng(0)
    drawn = [model.draw(rng) for _ in range(100)]
    assert drawn.count(("a0", "a0")) > 30
    assert len(set(drawn)) > 3
    expected = np.linalg.inv(model.root @ model.root.T)
    noise = np.array([np.linalg.solve(model.root.T, rng.standard_normal(9)) for _ in range(20_000)])
    assert np.cov(noise.T) == pytest.approx(expected, abs=0.02)


def test_expected_improvement_over_paths_leaves_out_what_was_drawn() -> None:
    space = counted_space((3, 3))
    table = PathArms(space, 0)
    paths = list(space.paths())
    values = {p: int(p[0][1:]) + int(p[1][1:]) for p in paths[3:]}
    rng = np.random.default_rng(0)
    first = table.improving(values, set(values), rng)
    second = table.improving(values, {*values, first}, rng)
    assert first[0] == second[0] == "a0"
    assert first != second
    assert table.improving(values, set(paths), rng) in paths


def test_more_paths_than_can_be_listed_are_drawn_once(monkeypatch) -> None:
    monkeypatch.setattr(path_table, "_MAX_PATHS", 50)
    space = counted_space((8, 8), 0)
    table = PathArms(space, 3)
    assert 20 < len(table.paths) <= 50
    assert table.paths == PathArms(space, 3).paths
    assert table.thompson({}, 10.0, np.random.default_rng(0)) in set(table.paths)
