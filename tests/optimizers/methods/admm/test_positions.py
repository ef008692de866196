"""Where hyperparameters stand: theta, delta and lambda of all algorithms."""

import pytest
from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from prefect_tune.optimizers import Algorithm, Configuration, Space, Step
from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.positions import Positions
from prefect_tune.optimizers.methods.admm.state import AdmmState

K, KIND, X = "0", "1", "2"
"""Columns of the first algorithm as the state names them."""


def space() -> Space:
    def algorithm(name: str) -> Algorithm:
        values = ConfigurationSpace(
            space=[
                Integer("a_k", (1, 10), default=3),
                Categorical("b_kind", ["x", "y", "z"], default="x"),
                Float("c_x", (0.0, 1.0), default=0.5),
            ]
        )
        return Algorithm(id=name, estimator="x.Y", hyperparameters=values)

    return Space("two", (Step("s", (algorithm("a"), algorithm("b"))),))


def at(k: int, kind: str = "x", x: float = 0.5, algorithm: str = "a") -> Configuration:
    return Configuration.of(space(), (algorithm,), [{"a_k": k, "b_kind": kind, "c_x": x}])


def positions(**options: object) -> Positions:
    return Positions(space(), AdmmOptions(**options).resolved())  # type: ignore[arg-type]


def test_what_was_never_tuned_has_its_defaults() -> None:
    assert positions().at(AdmmState(), ("a",)) == at(3)


def test_a_move_stands_where_theta_min_chose_and_remembers_how_far_it_was_pulled() -> None:
    state = AdmmState()
    positions().move(state, at(6, "z", 0.25))
    assert positions().at(state, ("a",)) == at(6, "z", 0.25)
    assert positions().at(state, ("b",)) == at(3, algorithm="b")
    # The relaxed integer is the nearest point of the cell of 6 to the default 3: 5.5.
    assert state.delta == {K: pytest.approx(5 / 9)}
    assert state.dual == {K: pytest.approx(-0.5 / 9)}


def test_an_integer_moved_down_stays_where_it_was_moved() -> None:
    state = AdmmState()
    positions().move(state, at(6))
    positions().move(state, at(2))
    assert positions().at(state, ("a",)) == at(2)
    assert state.delta == {K: pytest.approx(1 / 9)}


def test_inactive_integers_follow_their_multiplier_once() -> None:
    here, state = positions(), AdmmState()
    here.move(state, at(6))
    here.move(state, at(3, algorithm="b"))
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
    before = AdmmState.from_json(state.to_json())
    here.adopt(state, at(1, "y", 0.75))
    assert state == before
