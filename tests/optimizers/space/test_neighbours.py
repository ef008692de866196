import numpy as np
import pytest
from flash_worlds import counted_space
from worlds import mixed_space, sparse_space

from prefect_tune.optimizers import Space
from prefect_tune.optimizers.space.candidate_space import CandidateSpace, neighbours
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.tasks.catalogue.spaces import space_named

SPACES = [mixed_space(), sparse_space(), counted_space((2, 3), 2)]


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.name)
def test_neighbours_can_run_and_differ_in_one_thing(space: Space) -> None:
    rng = np.random.default_rng(1)
    table = CandidateSpace(space)
    points = table.encode(sample_configuration(space, rng) for _ in range(10))
    near, origin = neighbours(table, points, 20, rng)
    assert len(near)
    for row in range(len(near)):
        configuration = table.decode(near, row)
        assert configuration is not None
        assert space.is_feasible(configuration.path)
        steps = (near.algorithms[row] != points.algorithms[origin[row]]).sum()
        moved = (near.units[row] != points.units[origin[row]]).sum()
        assert steps + moved <= 1
    assert ((near.units >= 0) & (near.units <= 1)).all()


def test_whatever_can_change_does_evenly() -> None:
    space, rng = counted_space((2, 3), 2), np.random.default_rng(0)
    table = CandidateSpace(space)
    points = table.encode([sample_configuration(space, rng)])
    near, _ = neighbours(table, points, 3000, rng)
    changed = (near.algorithms != points.algorithms).sum(axis=0)
    moved = (near.units != points.units).sum(axis=0)
    # Two steps with a choice, and the two numbers of each algorithm chosen: 500 of each.
    assert all(abs(count - 500) < 105 for count in changed)  # five standard errors
    assert sorted(moved.tolist())[:-4] == [0] * (len(moved) - 4)
    assert all(abs(count - 500) < 105 for count in sorted(moved.tolist())[-4:])


def test_a_neighbour_keeps_the_prefix_before_what_it_changes() -> None:
    space = space_named("flash")
    rng = np.random.default_rng(0)
    candidates = CandidateSpace(space)
    before = [sample_configuration(space, rng) for _ in range(20)]
    near, origin = neighbours(candidates, candidates.encode(before), 30, rng)
    n_same = 0
    for row, i in enumerate(origin):
        configuration = candidates.decode(near, row)
        if configuration is None:
            continue
        changed = [
            k
            for k, (a, b) in enumerate(zip(configuration.choices, before[i].choices, strict=True))
            if a != b
        ]
        assert len(changed) <= 1
        n_same += not changed  # a small step of a whole number
    assert n_same < 0.1 * len(origin)
