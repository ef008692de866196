"""Values in the unit interval, configurations in the cube, candidates and neighbors."""

import numpy as np
import pytest
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    GreaterThanCondition,
    Integer,
    OrdinalHyperparameter,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import C, algorithm, counted_space, mixed_space, one_algorithm, sparse_space

from prefect_tune.optimizers import Configuration, Space, Step
from prefect_tune.optimizers.documents import choices_of
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import (
    CandidateSpace,
    Grid,
    from_unit,
    grid_of,
    neighbors,
    reflected,
    to_unit,
)


@pytest.mark.parametrize(
    "hyperparameter",
    [
        Integer("k", (0, 1)),
        Integer("k", (-3, 3)),
        Categorical("c", ["x", "y", "z"]),
        OrdinalHyperparameter("o", [1, 2, 5, 9]),
    ],
)
def test_every_value_has_an_equal_share_of_the_prior_including_the_ends(hyperparameter) -> None:
    h = hyperparameter
    values = list(choices_of(h) or range(h.lower, h.upper + 1))
    positions = (np.arange(100 * len(values)) + 0.5) / (100 * len(values))
    drawn = [from_unit(hyperparameter, u) for u in positions]
    assert [drawn.count(value) for value in values] == [100] * len(values)


def test_integers_of_older_studies_are_decoded_unchanged() -> None:
    """Older positions went from 0 for the first value to 1 for the last value."""
    for n in (2, 3, 10, 200):
        k = Integer("k", (1, n))
        assert [from_unit(k, i / (n - 1)) for i in range(n)] == list(range(1, n + 1))


@pytest.mark.parametrize(
    ("hyperparameter", "values"),
    [
        (Integer("a", (3, 50)), range(3, 51)),
        (Integer("b", (1, 9_000), log=True), range(1, 9_001)),
        (Integer("c", (-5, 2_000_000_000)), [-5, -4, 77, 2_000_000_000]),
        (Categorical("d", ["x", "y", "z"]), ["x", "y", "z"]),
        (OrdinalHyperparameter("e", [1, 2, 5]), [1, 2, 5]),
    ],
)
def test_discrete_values_survive_encoding_to_the_unit_interval(hyperparameter, values) -> None:
    assert [from_unit(hyperparameter, to_unit(hyperparameter, v)) for v in values] == [*values]


def one_to(n: int, *, log: bool = False) -> Grid:
    grid = grid_of(Integer("k", (1, n), log=log))
    assert grid is not None
    return grid


@given(n=st.integers(2, 60), log=st.booleans(), u=st.floats(0, 1))
def test_unit_position_has_the_same_value_in_grid_and_space(n, log, u) -> None:
    grid = one_to(n, log=log)
    if np.abs(grid.borders - u).min() > 1e-12:
        assert int(grid.index(u)) == from_unit(Integer("k", (1, n), log=log), u) - 1


@settings(max_examples=30)
@given(n=st.integers(2, 200), log=st.booleans(), target=st.floats(-0.5, 1.5))
def test_nearest_point_in_each_cell_is_projected_to_the_value_of_the_cell(n, log, target) -> None:
    grid = one_to(n, log=log)
    points = grid.nearest_in_cells(target)
    assert [grid.projected(float(x)) for x in points] == list(range(n))
    assert [one_to(3).projected(border) for border in (0.25, 0.75)] == [1, 2]  # half is up


def conditional_space() -> Space:
    """Return a space where an integer and a category decide which hyperparameters are active."""
    values = ConfigurationSpace(
        space=[
            Integer("a_layers", (1, 3), default=1),
            Integer("b_width", (1, 64), log=True, default=8),
            Categorical("c_kind", ["x", "y"], default="x"),
            Float("d_rate", (0.0, 1.0), default=0.5),
            Float("e_decay", (0.0, 1.0), default=0.5),
        ]
    )
    values.add(EqualsCondition(values["b_width"], values["a_layers"], 3))
    values.add(GreaterThanCondition(values["d_rate"], values["b_width"], 20))
    values.add(EqualsCondition(values["e_decay"], values["c_kind"], "y"))
    return Space("c", (Step("s", (algorithm("a", hyperparameters=values),)),))


@pytest.mark.parametrize("space", [conditional_space(), mixed_space()], ids=lambda s: s.name)
def test_active_columns_match_each_configuration(space: Space) -> None:
    table = CandidateSpace(space)
    drawn = table.sample(300, np.random.default_rng(0))
    active = table.active(drawn)
    names = [column[2] for column in table.columns]
    seen = set()
    for row in range(300):
        chosen = zip(space.searched, drawn.algorithms[row], strict=True)
        path = tuple(step.algorithms[place].id for step, place in chosen)
        configuration = table.from_cube(path, drawn.units[row])
        expected = {name for _, choice in configuration.choices for name, _ in choice.values}
        assert {names[i] for i in np.flatnonzero(active[row])} == expected
        seen.add(frozenset(expected))
    assert len(seen) > 3


SPACES = [mixed_space(), sparse_space(), counted_space((2, 3), 2)]


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.name)
def test_rows_are_encoded_like_single_configurations(space: Space) -> None:
    table = CandidateSpace(space)
    drawn = table.sample(60, np.random.default_rng(0))
    decoded = [table.decode(drawn, row) for row in range(len(drawn))]
    features = table.features(drawn)
    again = table.features(table.encode([c for c in decoded if c is not None]))
    for row, configuration in enumerate(decoded):
        assert configuration is not None
        assert Configuration.from_json(configuration.to_json(), space) == configuration
        positions, active = table.to_cube(configuration)
        expected = [*table.one_hot(configuration.path), *np.where(active, positions, -1.0)]
        assert again[row] == pytest.approx(expected, abs=1e-9)
        assert table.one_hot(configuration.path).sum() == len(configuration.path)
        assert np.abs(features[row] - again[row]).max() < 0.5  # whole numbers are rounded


def test_values_survive_encoding_to_the_last_digit() -> None:
    space = one_algorithm(C)
    values = np.geomspace(0.01, 900.0, 100).tolist()
    known = [Configuration.of(space, ("a",), [{"C": value}]) for value in values]
    table = CandidateSpace(space)
    encoded = table.encode(known)
    assert [table.decode(encoded, row) for row in range(100)] == known


def test_samples_and_neighbors_stay_in_the_restricted_space() -> None:
    space, rng = counted_space((3, 4)), np.random.default_rng(0)
    part = space.restricted_to({"step0": ["a1"], "step1": ["a0", "a3"]})
    table = CandidateSpace(space, part)
    drawn = table.sample(50, rng)
    assert {tuple(row) for row in drawn.algorithms.tolist()} == {(1, 0), (1, 3)}
    near, _ = neighbors(table, drawn, 10, rng)
    assert table.may_be_proposed(near).all()
    assert table.features(drawn).shape == (50, 7 + 7)
    outside = table.encode([default_configuration(space, ("a0", "a0"))])
    assert not table.may_be_proposed(outside).any()


def test_steps_beyond_the_unit_interval_are_reflected_into_the_interval() -> None:
    steps = np.array([-0.25, 1.25, 2.25, -3.5])
    assert reflected(steps).tolist() == [0.25, 0.75, 0.25, 0.5]


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.name)
def test_neighbors_are_feasible_and_differ_in_one_choice(space: Space) -> None:
    rng = np.random.default_rng(1)
    table = CandidateSpace(space)
    points = table.encode(sample_configuration(space, rng) for _ in range(10))
    near, origin = neighbors(table, points, 20, rng)
    assert len(near)
    for row in range(len(near)):
        configuration = table.decode(near, row)
        assert space.is_feasible(configuration.path)
        steps = (near.algorithms[row] != points.algorithms[origin[row]]).sum()
        moved = (near.units[row] != points.units[origin[row]]).sum()
        assert steps + moved <= 1
    assert ((near.units >= 0) & (near.units <= 1)).all()


def test_neighbors_change_every_choice_equally_often() -> None:
    space, rng = counted_space((2, 3), 2), np.random.default_rng(0)
    table = CandidateSpace(space)
    points = table.encode([sample_configuration(space, rng)])
    near, _ = neighbors(table, points, 3000, rng)
    changed = (near.algorithms != points.algorithms).sum(axis=0)
    moved = (near.units != points.units).sum(axis=0)
    # Two steps with a choice, and the two numbers of each algorithm chosen: 500 of each.
    assert all(abs(count - 500) < 105 for count in changed)  # five standard errors
    assert sorted(moved.tolist())[:-4] == [0] * (len(moved) - 4)
    assert all(abs(count - 500) < 105 for count in sorted(moved.tolist())[-4:])
