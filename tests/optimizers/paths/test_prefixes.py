"""Codes of prefixes, beside the prefixes themselves."""

import numpy as np
import pytest
from worlds import mixed_space, ordered_space

from prefect_tune.optimizers import Configuration, Space
from prefect_tune.optimizers.paths.cost import CandidatePrefixes, PathPrefixes
from prefect_tune.optimizers.paths.step_seconds import RunningOrder
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration

SPACES = [mixed_space(), ordered_space(2), ordered_space(3)]


def by_hand(space: Space, configuration: Configuration) -> dict[str, tuple[object, ...]]:
    """By step, all that ran up to it and did something, in order, with its values."""
    ran: tuple[object, ...] = ()
    prefixes = {}
    for step, algorithm in space.pipeline(configuration.path):
        if not algorithm.is_idle:
            ran = (*ran, (step.name, configuration[step.name]))
        prefixes[step.name] = ran
    return prefixes


@pytest.mark.parametrize("space", SPACES, ids=lambda s: f"{s.name}-{len(s.steps)}")
def test_prefixes_of_paths_are_equal_where_the_same_steps_ran_in_the_same_order(
    space: Space,
) -> None:
    prefixes, names = PathPrefixes(space, RunningOrder(space)), [s.name for s in space.searched]
    seen: dict[int, tuple[object, ...]] = {}
    codes: dict[tuple[object, ...], int] = {}
    for path in space.paths():
        expected = by_hand(space, default_configuration(space, path))
        for k, code in prefixes.codes(path).items():
            assert seen.setdefault(code, expected[names[k]]) == expected[names[k]]
            assert codes.setdefault(expected[names[k]], code) == code


@pytest.mark.parametrize("space", SPACES, ids=lambda s: f"{s.name}-{len(s.steps)}")
def test_prefixes_of_candidates_are_equal_where_steps_and_values_are(space: Space) -> None:
    rng = np.random.default_rng(0)
    table, order = CandidateSpace(space), RunningOrder(space)
    some = [sample_configuration(space, rng) for _ in range(40)]
    some += [default_configuration(space, c.path) for c in some]
    encoded = table.encode(some)
    prefixes = CandidatePrefixes(table, order).of(encoded, table.features(encoded))
    expected = [by_hand(space, c) for c in some]
    for k, step in enumerate(space.searched):
        if step.orders:
            continue
        for i in range(len(some)):
            equal = [prefixes[k][i] == prefixes[k][j] for j in range(len(some))]
            # A step that does nothing may be told apart from none where no order is chosen.
            wanted = [expected[i][step.name] == expected[j][step.name] for j in range(len(some))]
            assert equal == wanted
