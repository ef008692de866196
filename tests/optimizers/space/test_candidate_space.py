import numpy as np
import pytest
from flash_worlds import counted_space
from worlds import mixed_space, sparse_space

from prefect_tune.optimizers import Configuration, Encoding, Space
from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace, neighbours
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.tasks.catalogue.spaces import space_named

SPACES = [mixed_space(), sparse_space(), counted_space((2, 3), 2)]


def by_hand(encoding: Encoding, configuration: Configuration) -> np.ndarray:
    positions, active = encoding.to_cube(configuration)
    return np.concatenate([encoding.one_hot(configuration.path), np.where(active, positions, -1.0)])


@pytest.mark.parametrize("space", SPACES, ids=lambda s: s.name)
def test_rows_are_encoded_as_single_configurations_are(space: Space) -> None:
    table = CandidateSpace(space)
    drawn = table.sample(60, np.random.default_rng(0))
    decoded = [table.decode(drawn, row) for row in range(len(drawn))]
    features = table.features(drawn)
    again = table.features(table.encode([c for c in decoded if c is not None]))
    for row, configuration in enumerate(decoded):
        assert configuration is not None
        assert Configuration.from_json(configuration.to_json(), space) == configuration
        assert again[row] == pytest.approx(by_hand(table.encoding, configuration), abs=1e-9)
        whole_numbers_are_rounded = 0.5
        assert np.abs(features[row] - again[row]).max() < whole_numbers_are_rounded


def test_samples_and_neighbours_stay_in_the_part_that_may_be_proposed() -> None:
    space, rng = counted_space((3, 4)), np.random.default_rng(0)
    part = space.restricted_to({"step0": ["a1"], "step1": ["a0", "a3"]})
    table = CandidateSpace(space, part)
    drawn = table.sample(50, rng)
    assert {tuple(row) for row in drawn.algorithms.tolist()} == {(1, 0), (1, 3)}
    near, _ = neighbours(table, drawn, 10, rng)
    assert table.may_be_proposed(near).all()
    assert table.features(drawn).shape == (50, 7 + 7)
    outside = table.encode([default_configuration(space, ("a0", "a0"))])
    assert not table.may_be_proposed(outside).any()


@pytest.mark.parametrize("name", ["flash", "healthcare", "regression", "admm"])
def test_configurations_come_back_to_the_last_digit(name: str) -> None:
    space = space_named(name)
    rng = np.random.default_rng(0)
    paths = [sample_configuration(space, rng).path for _ in range(100)]
    before = [default_configuration(space, path) for path in paths]
    before += [sample_configuration(space, rng) for _ in range(100)]
    candidates = CandidateSpace(space)
    encoded = candidates.encode(before)
    assert [candidates.decode(encoded, row) for row in range(len(before))] == before


def test_defaults_come_back_from_their_positions() -> None:
    space = mixed_space()
    table = CandidateSpace(space)
    for path in space.paths():
        default = default_configuration(space, path)
        algorithms = table.encode([default]).algorithms
        assert table.decode(Candidates(algorithms, table.default_units[None]), 0) == default
