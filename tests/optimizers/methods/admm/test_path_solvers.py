import numpy as np
import pytest
from flash_worlds import counted_space
from worlds import mixed_space, ordered_space

from prefect_tune.optimizers.methods.admm.path_solvers import PathArms
from prefect_tune.optimizers.paths import table as path_table


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


def test_only_paths_that_can_run_are_drawn() -> None:
    space = mixed_space()
    table = PathArms(space, 0)
    rng = np.random.default_rng(0)
    drawn = {table.thompson({}, 10.0, rng) for _ in range(300)}
    assert drawn == set(space.paths())
    assert {table.random(rng) for _ in range(300)} == drawn


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
