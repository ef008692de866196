"""Which hyperparameters are active, for many candidates at once."""

import numpy as np
import pytest
from ConfigSpace import (
    Categorical,
    ConfigurationSpace,
    EqualsCondition,
    Float,
    GreaterThanCondition,
    Integer,
)
from worlds import mixed_space

from prefect_tune.optimizers import Algorithm, Space, Step
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.sampling import sample_configuration


def conditional_space() -> Space:
    """What is active depends on an integer, which decides on another one, and on a category."""
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
    return Space("c", (Step("s", (Algorithm(id="a", estimator="x.Y", hyperparameters=values),)),))


@pytest.mark.parametrize("space", [conditional_space(), mixed_space()], ids=lambda s: s.name)
def test_the_active_ones_are_those_of_each_configuration(space: Space) -> None:
    table = CandidateSpace(space)
    drawn = table.sample(300, np.random.default_rng(0))
    active = table.columns.active(drawn)
    names = [column[2] for column in table.encoding.columns]
    seen = set()
    for row in range(300):
        configuration = table.encoding.from_cube(
            tuple(
                s.algorithms[a].id
                for s, a in zip(space.searched, drawn.algorithms[row], strict=True)
            ),
            drawn.units[row],
        )
        expected = {name for _, choice in configuration.choices for name, _ in choice.values}
        assert {names[i] for i in np.flatnonzero(active[row])} == expected
        seen.add(frozenset(expected))
    assert len(seen) > 3


def test_categories_are_snapped_to_the_middle_of_their_shares_and_numbers_are_not() -> None:
    space = mixed_space()
    table = CandidateSpace(space)
    names = [column[2] for column in table.encoding.columns]
    units = np.full((1, len(names)), 0.9)
    snapped = dict(zip(names, table.columns.snapped(units)[0], strict=True))
    assert snapped == {"C": 0.9, "kernel": 0.75, "poly.degree": 0.9, "depth": 0.9}


def test_encoded_configurations_have_the_hyperparameters_of_their_own() -> None:
    space = conditional_space()
    table, rng = CandidateSpace(space), np.random.default_rng(1)
    some = [sample_configuration(space, rng) for _ in range(50)]
    active = table.columns.active(table.encode(some))
    assert active.sum(axis=1).tolist() == [len(c["s"].values) for c in some]
