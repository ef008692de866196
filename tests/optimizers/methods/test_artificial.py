"""The artificial objective that ADMM is measured on is the one of the paper."""

import numpy as np
import pytest
from loss_worlds.artificial import A2, A3, ArtificialLoss, after_step, artificial_space

from prefect_tune.optimizers import Query
from prefect_tune.optimizers.space.sampling import sample_configuration


def test_worked_values() -> None:
    first = after_step(
        0.0, np.array([0.5, -1.0]), np.array([2.0, 3.0]), np.random.RandomState(7).normal(size=10)
    )
    assert first == pytest.approx(0.701890, abs=1e-6)
    xi = np.random.RandomState(11).normal(size=10)
    w, theta = np.array([1.0, 0.2, -0.3]), np.array([0.5, 1.0, 2.0])
    second = after_step(first, w, theta, xi)
    assert second == pytest.approx(0.751874, abs=1e-6)
    drawn = np.random.RandomState(11).normal(first, abs(w @ theta / theta.sum()), 10)
    assert second == pytest.approx(np.abs(drawn).max())


@pytest.mark.parametrize(("shape", "n_paths", "n_numbers"), [(A3, 108, 36), (A2, 6776, 92)])
def test_the_spaces_have_the_shapes_of_the_tables(shape, n_paths, n_numbers) -> None:
    space = artificial_space(shape)
    assert space.n_paths == n_paths
    assert space.n_hyperparameters == n_numbers


def test_a_world_is_fixed_and_differs_from_others() -> None:
    space = artificial_space(A3)
    rng = np.random.default_rng(0)
    queries = [Query(sample_configuration(space, rng)) for _ in range(20)]
    losses = [[ArtificialLoss(A3, world)(q) for q in queries] for world in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    assert min(losses[0]) >= 0
