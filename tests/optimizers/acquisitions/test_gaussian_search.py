import numpy as np
from flash_worlds import counted_space
from worlds import mixed_space

from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.space.sampling import sample_configuration


def test_a_path_without_hyperparameters_has_no_choices() -> None:
    space = mixed_space().restricted_to({"scale": ["none"], "model": ["bayes"]})
    assert not GaussianSearch(space).has_choices
    assert GaussianSearch(mixed_space()).has_choices


def test_with_many_observations_two_of_three_asks_keep_the_parameters() -> None:
    search, rng = GaussianSearch(counted_space((2, 2), 1)), np.random.default_rng(0)
    observed = search.inputs.encode(sample_configuration(search.space, rng) for _ in range(67))
    targets = observed.units[:, :1] ** 2
    _, theta = search.learned(observed[:66], targets[:66], rng)
    _, kept = search.learned(observed, targets, rng, theta)
    assert kept == theta
    _, refitted = search.learned(observed[:66], 5 * targets[:66] + rng.random((66, 1)), rng, theta)
    assert refitted != theta


def test_parameters_of_another_kernel_are_not_a_start() -> None:
    search, rng = GaussianSearch(counted_space((2, 2), 1)), np.random.default_rng(0)
    observed = search.inputs.encode(sample_configuration(search.space, rng) for _ in range(6))
    _, theta = search.learned(observed, observed.units[:, :1], rng, [0.0])
    assert len(theta) == len(search.inputs.kernel.parameters) + 1
