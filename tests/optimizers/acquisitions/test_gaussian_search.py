import numpy as np
import pytest
from flash_worlds import counted_space
from worlds import mixed_space

from prefect_tune.optimizers.acquisitions.gaussian_search import Fitted, GaussianSearch
from prefect_tune.optimizers.space.sampling import sample_configuration


def test_a_path_without_hyperparameters_has_no_choices() -> None:
    space = mixed_space().restricted_to({"scale": ["none"], "model": ["bayes"]})
    assert not GaussianSearch(space).has_choices
    assert GaussianSearch(mixed_space()).has_choices


def learned_with(numbers: list[int]) -> list[Fitted]:
    """The parameters that are kept when asks find so many observations, one after the other."""
    search, rng = GaussianSearch(counted_space((2, 2), 1)), np.random.default_rng(0)
    observed = search.inputs.encode(
        sample_configuration(search.space, rng) for _ in range(max(numbers))
    )
    targets = observed.units[:, :1] ** 2 + np.arange(max(numbers))[:, None] / 50
    last, kept = None, []
    for n in numbers:
        _, last = search.learned(observed[:n], targets[:n], rng, last)
        kept.append(last)
    return kept


@pytest.mark.parametrize("step", [1, 2, 3, 6])
def test_with_many_observations_it_is_fitted_again_three_after_the_last_fit(step: int) -> None:
    """With several workers asks may never find a number that three divides."""
    numbers = list(range(65, 65 + 5 * step, step))
    kept = learned_with(numbers)
    expected, last = [], 0
    for n in numbers:
        last = n if n - last >= 3 else last
        expected.append(last)
    assert [fitted.n for fitted in kept] == expected
    thetas = dict.fromkeys(fitted.theta for fitted in kept)
    assert len(thetas) == len(set(expected)) > 1


def test_with_few_observations_it_is_fitted_at_each_ask() -> None:
    assert [fitted.n for fitted in learned_with([20, 21, 64])] == [20, 21, 64]


def test_parameters_of_another_kernel_are_not_a_start() -> None:
    search, rng = GaussianSearch(counted_space((2, 2), 1)), np.random.default_rng(0)
    observed = search.inputs.encode(sample_configuration(search.space, rng) for _ in range(70))
    _, fitted = search.learned(observed, observed.units[:, :1], rng, Fitted((0.0,), 69))
    assert len(fitted.theta) == len(search.inputs.kernel.parameters) + 1
    assert fitted.n == 70


def test_what_is_under_way_is_taken_to_return_the_mean() -> None:
    search, rng = GaussianSearch(counted_space((1,), 1)), np.random.default_rng(0)
    observed = search.inputs.encode(sample_configuration(search.space, rng) for _ in range(6))
    targets = (observed.units[:, :1] - 0.4) ** 2
    twin = sample_configuration(search.space, rng)
    alone, _ = search.learned(observed, targets, rng)
    busy, _ = search.learned(observed, targets, rng, pending=[twin])
    there = search.inputs.of(search.inputs.encode([twin]))
    assert busy.predict(there)[0] == pytest.approx(alone.predict(there)[0], abs=1e-3)
    assert busy.predict(there)[1] < 0.7 * alone.predict(there)[1]


def test_configurations_are_new_and_in_order() -> None:
    search, rng = GaussianSearch(counted_space((2, 2), 1)), np.random.default_rng(0)
    drawn = [sample_configuration(search.space, rng) for _ in range(6)]
    asked = {drawn[0], drawn[3]}
    ranked = search.inputs.encode(drawn)
    assert list(search.new_configurations(ranked, asked)) == [drawn[i] for i in (1, 2, 4, 5)]
