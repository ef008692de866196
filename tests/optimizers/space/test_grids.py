"""Discrete hyperparameters as grids."""

import numpy as np
import pytest
from ConfigSpace import Categorical, Float, Integer, OrdinalHyperparameter
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers.space.unit_interval import Grid, from_unit, grid_of


def one_to(n: int, *, log: bool = False) -> Grid:
    grid = grid_of(Integer("k", (1, n), log=log))
    assert grid is not None
    return grid


def test_an_integer_of_very_many_values_is_taken_for_continuous() -> None:
    assert grid_of(Integer("k", (1, 2_000_000_000))) is None
    assert grid_of(Integer("k", (1, 10_000))) is not None


@given(n=st.integers(2, 40), position=st.floats(-1, 2), target=st.floats(-1, 2))
def test_projection_is_to_the_nearest_is_idempotent_and_stays_in_cells(
    n: int, position: float, target: float
) -> None:
    grid = one_to(n)
    i = grid.projected(position)
    clipped = np.clip(position, 0, 1)
    assert abs(grid.positions[i] - clipped) <= np.abs(grid.positions - clipped).min() + 1e-12
    assert grid.projected(grid.positions[i]) == i
    cells = grid.nearest_in_cells(target)
    assert (np.abs(cells - grid.positions) <= 0.5 / (n - 1) + 1e-12).all()
    assert cells[i] == pytest.approx(target) or not 0 <= target <= 1 or grid.projected(target) != i


def test_half_way_is_up() -> None:
    grid = one_to(3)
    assert [grid.projected(x) for x in (0.2499, 0.25, 0.75)] == [0, 1, 2]


@pytest.mark.parametrize(
    "hyperparameter",
    [
        Integer("a", (1, 50)),
        Integer("b", (50, 10_000), log=True),
        Categorical("c", ["x", "y", "z"]),
        Categorical("d", [True, False]),
        OrdinalHyperparameter("e", [1, 2, 5]),
    ],
    ids=lambda h: h.name,
)
def test_each_unit_of_a_grid_is_another_value(hyperparameter) -> None:
    grid = grid_of(hyperparameter)
    assert grid is not None
    values = [from_unit(hyperparameter, u) for u in grid.units]
    assert len(set(values)) == len(values) == hyperparameter.size
    assert list(grid.index(grid.units)) == list(range(len(values)))
    assert grid.is_ordered == (hyperparameter.name != "c")


def test_a_number_has_no_grid() -> None:
    assert grid_of(Float("x", (0.0, 1.0))) is None


@given(n=st.integers(2, 60), log=st.booleans(), u=st.floats(0, 1))
def test_a_unit_stands_for_the_same_value_in_the_grid_and_in_the_space(
    n: int, log: bool, u: float
) -> None:
    grid = one_to(n, log=log)
    if np.abs(grid.borders - u).min() > 1e-12:
        assert int(grid.index(u)) == from_unit(Integer("k", (1, n), log=log), u) - 1


def test_positions_are_the_range_from_end_to_end() -> None:
    assert one_to(10).positions == pytest.approx(np.arange(10) / 9)
    assert one_to(16, log=True).positions[[0, 1, 3, 15]] == pytest.approx([0, 0.25, 0.5, 1])


@given(n=st.integers(2, 200), log=st.booleans(), target=st.floats(-0.5, 1.5))
def test_the_point_of_each_cell_is_projected_to_its_own_value(
    n: int, log: bool, target: float
) -> None:
    grid = one_to(n, log=log)
    points = grid.nearest_in_cells(target)
    assert [grid.projected(float(x)) for x in points] == list(range(n))


def test_on_the_border_above_a_cell_its_point_stays_inside() -> None:
    grid = one_to(10)
    assert grid.projected(float(grid.nearest_in_cells(1.0)[2])) == 2
