"""Relaxed integers, slacks and rewards, where hyperparameters stand, and the scales of it all."""

import numpy as np
import pytest
from ConfigSpace import Categorical, Float, Integer
from hypothesis import given
from hypothesis import strategies as st
from worlds import algorithm, mixed_space

from prefect_tune.optimizers import (
    Configuration,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Objective,
    Query,
    Space,
    Step,
    Trial,
)
from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.converter import from_document, to_document
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.splitting import (
    constraint_penalty,
    distances,
    integer_update,
    next_multiplier,
    reward,
    slack,
)
from prefect_tune.optimizers.methods.admm.state import AdmmState, Positions, observations
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.unit_interval import Grid, grid_of


def one_to(n: int) -> Grid:
    grid = grid_of(Integer("k", (1, n)))
    assert grid is not None
    return grid


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


def test_the_multiplier_moves_what_integers_are_pulled_to() -> None:
    grid = one_to(10)
    assert distances(grid, 3 / 9, 0.2) == pytest.approx(distances(grid, 3 / 9 - 0.2, 0.0))
    assert distances(grid, 3 / 9, -0.5).argmin() == 7


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


K, KIND, X = "0", "1", "2"
"""Columns of the first algorithm as the state names them."""


VALUES = (
    Integer("a_k", (1, 10), default=3),
    Categorical("b_kind", ["x", "y", "z"], default="x"),
    Float("c_x", (0.0, 1.0), default=0.5),
)


def space() -> Space:
    return Space("two", (Step("s", (algorithm("a", *VALUES), algorithm("b", *VALUES))),))


def at(k: int, kind: str = "x", x: float = 0.5, name: str = "a") -> Configuration:
    return Configuration.of(space(), (name,), [{"a_k": k, "b_kind": kind, "c_x": x}])


def positions(**options: object) -> Positions:
    return Positions(space(), AdmmOptions(**options).resolved())  # type: ignore[arg-type]


def test_what_was_never_tuned_has_its_defaults() -> None:
    assert positions().at(AdmmState(), ("a",)) == at(3)


def test_a_move_stands_where_theta_min_chose_and_remembers_how_far_it_was_pulled() -> None:
    state = AdmmState()
    positions().move(state, at(6, "z", 0.25))
    assert positions().at(state, ("a",)) == at(6, "z", 0.25)
    assert positions().at(state, ("b",)) == at(3, name="b")
    # The relaxed integer is the nearest point of the cell of 6 to the default 3: 5.5.
    assert state.delta == {K: pytest.approx(5 / 9)}
    assert state.dual == {K: pytest.approx(-0.5 / 9)}


def test_inactive_integers_follow_their_multiplier_once() -> None:
    here, state = positions(), AdmmState()
    here.move(state, at(6))
    here.move(state, at(3, name="b"))
    assert state.dual[K] == pytest.approx(0.0)
    assert here.at(state, ("a",)) == at(6)


def test_without_a_weight_nothing_is_pulled() -> None:
    here, state = positions(rho=0.0), AdmmState()
    here.move(state, at(6))
    assert state.dual == {K: 0.0}
    assert here.penalties(state, GaussianSearch(space()), ("a",)) == {}


def test_integers_cost_the_square_of_their_way_and_unordered_categories_nothing() -> None:
    state = AdmmState()
    tables = positions(rho=2.0).penalties(state, GaussianSearch(space()), ("a",))
    assert list(tables) == [0]
    # From 3 to 6 it is 2.5 of 9 steps to the nearest point of the cell.
    assert tables[0][[2, 5]] == pytest.approx([0.0, (2.5 / 9) ** 2])


def test_what_z_min_found_is_adopted_with_its_projection() -> None:
    here, state = positions(), AdmmState()
    here.adopt(state, at(8, "y", 0.75))
    assert here.at(state, ("a",)) == at(8, "y", 0.75)
    assert state.delta == {K: pytest.approx(7 / 9)}
    assert state.dual == {}
    # Integers are pulled to where they were found, not to the defaults.
    table = here.penalties(state, GaussianSearch(space()), ("a",))[0]
    assert table.argmin() == 7


def test_what_was_tuned_is_not_adopted_again() -> None:
    here, state = positions(), AdmmState()
    here.move(state, at(6, "z", 0.25))
    before = from_document(AdmmState, to_document(state))
    here.adopt(state, at(1, "y", 0.75))
    assert state == before


def history_of(*losses: float | None, sizes: tuple[float, ...] = ()) -> History:
    history = History()
    query = Query(default_configuration(mixed_space(), ("none", "tree")))
    for number, loss in enumerate(losses):
        started = Trial(number, query).started()
        if loss is None:
            history.record(started.failed(Failure(FailureKind.ERROR, "it failed")))
            continue
        measured = {"size": sizes[number]} if number < len(sizes) else {}
        outcome = Evaluation(loss, (loss,), constraints=measured)
        history.record(started.completed(outcome))
    return history


def test_losses_are_shares_of_the_metrics_range() -> None:
    objective = Objective("x", "", 20.0, 60.0)
    observed = observations(history_of(20.0, 30.0, None), objective, "bound", 0.7, 0.0)
    assert observed.losses == pytest.approx([0.0, 0.25, 1.0])
    assert observed.worst_reward_loss == 0.7


@pytest.mark.parametrize(("chance", "worst"), [(None, 0.7 * 8 / 4), (9.0, 8.0 / 4)])
def test_without_a_range_they_are_distances_from_the_best_in_quartile_ranges(
    chance: float | None, worst: float
) -> None:
    objective = Objective("x", "", -np.inf, np.inf, chance)
    observed = observations(history_of(1.0, 3.0, 5.0, 7.0, 9.0), objective, "worst", 0.7, 0.0)
    assert observed.losses == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
    assert observed.worst_reward_loss == pytest.approx(worst)


def limited(bound: float) -> Objective:
    return Objective("x", "", 0.0, 1.0, constraints=(Constraint("size", bound),))


def test_quantities_are_in_units_of_their_bounds_and_what_was_not_measured_is_twice_it() -> None:
    history = history_of(0.5, 0.5, 0.5, None, sizes=(10.0, 60.0))
    observed = observations(history, limited(20.0), "bound", 0.7, 0.1)
    assert observed.quantities[:, 0] == pytest.approx([0.5, 3.0, 2.0, 2.0])
    assert observed.bounds == pytest.approx([0.9])


def test_a_bound_of_zero_takes_a_typical_value_as_its_unit() -> None:
    observed = observations(
        history_of(0.5, 0.5, 0.5, sizes=(0.0, 4.0, 8.0)), limited(0.0), "bound", 0.7, 0.0
    )
    assert observed.quantities[:, 0] == pytest.approx([0.0, 4 / 6, 8 / 6])
    assert observed.bounds == pytest.approx([0.0])


def test_a_bound_that_nothing_exceeds_is_idle() -> None:
    history = history_of(0.5, 0.6, None, sizes=(10.0, 20.0))
    observed = observations(history, limited(20.0), "bound", 0.7, 0.1)
    assert not observed.quantities.any()
    assert observed.augmented(AdmmState(), 10.0) == pytest.approx(observed.losses)


def test_the_augmented_loss_adds_the_penalty_of_each_constraint() -> None:
    observed = observations(
        history_of(0.5, 0.6, sizes=(10.0, 60.0)), limited(20.0), "bound", 0.7, 0.0
    )
    state = AdmmState(mu={"size<=20.0": 2.0})
    penalties = constraint_penalty(np.array([0.5, 3.0]), 1.0, 2.0, 10.0)
    assert observed.augmented(state, 10.0) == pytest.approx(np.array([0.5, 0.6]) + penalties)
    assert observed.multipliers(AdmmState()) == pytest.approx([0.0])


def test_memos_of_studies_begun_before_are_read() -> None:
    document = to_document(AdmmState(theta=[1.0]))
    del document["fitted"]
    assert from_document(AdmmState, document).fitted == 0
