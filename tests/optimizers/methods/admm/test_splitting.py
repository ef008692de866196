import numpy as np
import pytest
from ConfigSpace import Integer
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers.methods.admm.splitting import (
    constraint_penalty,
    distances,
    integer_update,
    next_multiplier,
    reward,
    slack,
)
from prefect_tune.optimizers.space.unit_interval import Grid, grid_of


def one_to(n: int) -> Grid:
    grid = grid_of(Integer("k", (1, n)))
    assert grid is not None
    return grid


@given(st.floats(-100, -1e-6), st.floats(0, 1), st.floats(0, 5), st.floats(0.1, 100))
def test_a_quantity_far_below_its_limit_is_no_violation(
    value: float, bound: float, multiplier: float, rho_g: float
) -> None:
    low = value - multiplier / rho_g
    assert constraint_penalty(low, bound, multiplier, rho_g) == pytest.approx(0, abs=1e-9)
    assert next_multiplier(low, bound, multiplier, rho_g) == pytest.approx(0, abs=1e-9)


def test_three_iterations_of_an_active_integer() -> None:
    grid = one_to(10)
    delta, dual = 2 / 9, 0.0
    expected = [
        # chosen value, b, relaxed, penalty at rho = 1, delta after, lambda after
        (4, 0.222222, 0.277778, 0.001543, 0.333333, -0.055556),
        (4, 0.388889, 0.388889, 0.0, 0.333333, 0.0),
        (6, 0.333333, 0.5, 0.013889, 0.555556, -0.055556),
    ]
    for value, b, relaxed, penalty, delta_after, dual_after in expected:
        assert delta - dual == pytest.approx(b, abs=1e-6)
        assert 0.5 * distances(grid, delta, dual)[value - 1] == pytest.approx(penalty, abs=1e-6)
        got, delta, dual = integer_update(grid, delta, dual, value - 1)
        assert (got, delta, dual) == pytest.approx((relaxed, delta_after, dual_after), abs=1e-6)


def test_three_iterations_of_an_integer_that_goes_down() -> None:
    """The same mirrored: from 6 to 3, 3 and 1. What is chosen is not undone by rounding."""
    grid = one_to(10)
    delta, dual = 5 / 9, 0.0
    expected = [
        # chosen value, b, relaxed, penalty at rho = 1, delta after, lambda after
        (3, 0.555556, 0.277778, 0.038580, 0.222222, 0.055556),
        (3, 0.166667, 0.166667, 0.0, 0.222222, 0.0),
        (1, 0.222222, 0.055556, 0.013889, 0.0, 0.055556),
    ]
    for value, b, relaxed, penalty, delta_after, dual_after in expected:
        assert delta - dual == pytest.approx(b, abs=1e-6)
        assert 0.5 * distances(grid, delta, dual)[value - 1] == pytest.approx(penalty, abs=1e-6)
        got, delta, dual = integer_update(grid, delta, dual, value - 1)
        assert (got, delta, dual) == pytest.approx((relaxed, delta_after, dual_after), abs=1e-6)


@given(n=st.integers(2, 200), start=st.integers(0, 199), chosen=st.integers(0, 199))
def test_the_value_chosen_is_the_one_projected(n: int, start: int, chosen: int) -> None:
    grid = one_to(n)
    at = float(grid.positions[min(start, n - 1)])
    _, delta, _ = integer_update(grid, at, 0.0, min(chosen, n - 1))
    assert delta == grid.positions[min(chosen, n - 1)]


def test_the_multiplier_moves_what_integers_are_pulled_to() -> None:
    grid = one_to(10)
    assert distances(grid, 3 / 9, 0.2) == pytest.approx(distances(grid, 3 / 9 - 0.2, 0.0))
    assert distances(grid, 3 / 9, -0.5).argmin() == 7


def test_an_inactive_integer_remembers_and_clears_its_multiplier() -> None:
    grid = one_to(10)
    relaxed, delta, dual = integer_update(grid, 3 / 9, 0.03, None)
    assert (relaxed, delta, dual) == pytest.approx((0.303333, 0.333333, 0.0), abs=1e-6)
    assert integer_update(grid, delta, dual, None)[0] == pytest.approx(1 / 3)


def test_a_clipped_multiplier_moves_an_inactive_integer_once() -> None:
    grid = one_to(10)
    relaxed, delta, dual = integer_update(grid, 0.0, 0.2, None)
    assert (relaxed, delta, dual) == pytest.approx((0.0, 0.222222, -0.022222), abs=1e-6)
    relaxed, delta, dual = integer_update(grid, delta, dual, None)
    assert (relaxed, delta, dual) == pytest.approx((0.244444, 0.222222, 0.0), abs=1e-6)


@given(
    n=st.integers(2, 30),
    b=st.floats(-0.5, 1.5),
    values=st.lists(st.floats(0, 0.3), min_size=30, max_size=30),
    rho=st.floats(0.001, 10),
)
def test_eliminating_the_relaxed_integer_is_exact(
    n: int, b: float, values: list[float], rho: float
) -> None:
    """The augmented least over a fine grid of relaxed integers is that of the cells' points."""
    grid = one_to(n)
    losses = np.array(values[:n])
    fine = np.linspace(0, 1, 4001)
    rounded = np.minimum(np.floor(fine * (n - 1) + 0.5 + 1e-12), n - 1).astype(int)
    brute = (losses[rounded] + 0.5 * rho * (fine - b) ** 2).min()
    exact = (losses + 0.5 * rho * distances(grid, b, 0.0)).min()
    assert exact <= brute + 1e-7
    assert exact >= brute - rho * 2 / 4000


@pytest.mark.parametrize(
    ("g", "bound", "mu", "u", "residual", "penalty", "after"),
    [
        (0.09, 0.07, 0.0, 0.0, 0.02, 0.0002, 0.02),
        (0.05, 0.07, 0.0, 0.02, 0.0, 0.0, 0.0),
        (0.05, 0.07, 0.01, 0.01, -0.01, 0.0, 0.0),
        (0.0, 0.07, 0.02, 0.05, -0.02, 0.0, 0.0),
        (0.02, 0.07, 0.10, 0.0, -0.05, 0.00125, 0.05),
    ],
)
def test_slacks(g, bound, mu, u, residual, penalty, after) -> None:  # noqa: PLR0917
    best = float(slack(g, bound, mu, 1.0))
    assert best == pytest.approx(u)
    assert g - bound + best == pytest.approx(residual)
    assert float(constraint_penalty(g, bound, mu, 1.0)) == pytest.approx(penalty)
    assert next_multiplier(g, bound, mu, 1.0) == pytest.approx(after, abs=1e-12)


@given(g=st.floats(0, 5), mu=st.floats(0, 5), rho_g=st.floats(0.1, 50))
def test_without_slack_the_term_is_the_squared_excess(g: float, mu: float, rho_g: float) -> None:
    classic = 0.5 * rho_g * max(0.0, g - 1 + mu / rho_g) ** 2
    assert float(constraint_penalty(g, 1.0, mu, rho_g)) == pytest.approx(classic, abs=1e-9)
    assert next_multiplier(g, 1.0, mu, rho_g) == pytest.approx(
        max(mu + rho_g * (g - 1), 0.0), abs=1e-9
    )


def test_rewards() -> None:
    losses = [0.05, 0.21, 0.35, 0.7, 0.9, -0.1]
    assert reward(losses, 0.7) == pytest.approx([0.928571, 0.7, 0.5, 0.0, 0.0, 1.0], abs=1e-6)
