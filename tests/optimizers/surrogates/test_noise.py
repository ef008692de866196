import numpy as np
import pytest

from prefect_tune.optimizers.surrogates.noise import NOISE, ConstantNoise, FallingNoise, Noise

INPUTS = np.array([[0.3, 0.0], [0.9, 0.5], [0.3, 1.0]])
THETA = np.log([0.01, 0.4])


def test_a_constant_noise_is_that_of_theta_everywhere() -> None:
    assert ConstantNoise().variance(THETA[:1], INPUTS) == pytest.approx([0.01] * 3)


def test_a_falling_noise_is_least_on_the_full_data() -> None:
    noise = FallingNoise(column=1)
    assert noise.variance(THETA, INPUTS) == pytest.approx([0.41, 0.11, 0.01], rel=1e-6)


def test_a_falling_noise_does_not_end_at_zero() -> None:
    noise = FallingNoise(column=1)
    assert noise.variance(np.array([-80.0, -80.0]), INPUTS) == pytest.approx([1e-9] * 3)


def test_a_falling_noise_reads_the_column_it_is_told() -> None:
    assert FallingNoise(0).variance(THETA, INPUTS)[1] == pytest.approx(0.01 + 0.4 * 0.1**2)


@pytest.mark.parametrize("noise", [ConstantNoise(), FallingNoise(1)], ids=["constant", "falling"])
def test_gradients_agree_with_central_differences(noise: Noise) -> None:
    theta, weights = THETA[: len(noise.parameters)], np.array([1.0, -2.0, 0.7])
    variance, pull = noise.pullback(theta, INPUTS)
    assert variance == pytest.approx(noise.variance(theta, INPUTS), abs=1e-15)
    steps = 1e-6 * np.eye(len(theta))
    expected = [
        weights @ (noise.variance(theta + e, INPUTS) - noise.variance(theta - e, INPUTS)) / 2e-6
        for e in steps
    ]
    assert pull(weights) == pytest.approx(expected, abs=1e-8)


def test_bounds_and_priors_are_those_of_the_sheet() -> None:
    """Fabolas sheet, 1.4 and 1.5: sigma_0^2 in [1e-6, 1], sigma_1^2 in [1e-6, 4]."""
    everywhere, small = FallingNoise(1).parameters
    assert everywhere == NOISE
    bounds = np.exp([[p.lower, p.upper] for p in (everywhere, small)])
    assert bounds == pytest.approx(np.array([[1e-6, 1.0], [1e-6, 4.0]]))
    assert everywhere.prior == small.prior == pytest.approx((np.log(0.01), 2.0))
