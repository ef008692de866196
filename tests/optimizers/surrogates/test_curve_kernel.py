import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from worlds import mixed_space

from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.surrogates.log_posterior import log_posterior, log_posterior_value
from prefect_tune.optimizers.surrogates.stationary import Matern52

OF_TIME = Decay()
INPUTS = pipeline_inputs(mixed_space())


def kernel() -> CurveKernel:
    """Of two numbers, with t between them."""
    return CurveKernel(Matern52([0, 2]), 1, OF_TIME)


def rows(n: int, seed: int) -> np.ndarray:
    inputs = np.random.default_rng(seed).random((n, 3))
    inputs[::3, 1] = 1.0
    return inputs


def drawn_theta(kernel: CurveKernel | Decay, seed: int) -> np.ndarray:
    """From the priors; bounds admit kernels too steep for differences."""
    rng = np.random.default_rng(seed)
    return np.array([p.draw(rng) for p in kernel.parameters])


def test_worked_decay() -> None:
    """Sheet, W1."""
    of_time, theta = Decay(), np.log([0.5, 1.0, 1.5, 0.3])
    t, u = np.array([0.2]), np.array([0.5])
    assert of_time.covariance(theta, t, u)[0, 0] == pytest.approx(0.6643167672515498, rel=1e-14)
    assert of_time.slope(theta, t, u)[0, 0] == pytest.approx(-0.24647515087732472, rel=1e-14)
    assert of_time.slope_slope(theta, t, u)[0, 0] == pytest.approx(0.6161878771933119, rel=1e-14)
    assert of_time.variance(theta, t)[0] == pytest.approx(0.7805658588748473, rel=1e-14)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_slopes_agree_with_central_differences(seed: int) -> None:
    theta, (t, u) = drawn_theta(OF_TIME, seed), np.random.default_rng(seed).uniform(0.1, 1, (2, 5))
    h = 1e-5
    slope = (OF_TIME.covariance(theta, t, u + h) - OF_TIME.covariance(theta, t, u - h)) / (2 * h)
    size = np.abs(OF_TIME.slope_slope(theta, t, u)).max() + np.abs(slope).max()
    assert OF_TIME.slope(theta, t, u) == pytest.approx(slope, abs=1e-8 * max(size, 1) * 10)
    second = (OF_TIME.slope(theta, t + h, u) - OF_TIME.slope(theta, t - h, u)) / (2 * h)
    assert OF_TIME.slope_slope(theta, t, u) == pytest.approx(second, abs=1e-8 * max(size, 1) * 10)


def test_slopes_of_curves_are_those_of_t_times_the_covariance_within() -> None:
    of_curves, a, b = kernel(), rows(4, 0), rows(5, 1)
    theta, step = drawn_theta(of_curves, 3), np.array([0.0, 1e-5, 0.0])

    def difference(f: np.ndarray, g: np.ndarray) -> np.ndarray:
        return (f - g) / 2e-5

    covariance = of_curves.covariance
    slope = difference(covariance(theta, a, b + step), covariance(theta, a, b - step))
    assert of_curves.slope_covariance(theta, a, b) == pytest.approx(slope, abs=1e-8)
    second = difference(
        of_curves.slope_covariance(theta, a + step, b),
        of_curves.slope_covariance(theta, a - step, b),
    )
    assert of_curves.slope_slope_covariance(theta, a, b) == pytest.approx(second, abs=1e-7)
    diagonal = np.diag(of_curves.slope_slope_covariance(theta, b, b))
    assert of_curves.slope_variance(theta, b) == pytest.approx(diagonal, rel=1e-12)
    between = Matern52([0, 2]).covariance(theta[:2], a, b)
    assert of_curves.between(theta, a, b) == pytest.approx(between, rel=1e-12)


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_values_and_slopes_have_a_joint_covariance(seed: int) -> None:
    """Symmetric, none negative."""
    of_curves, a, b = kernel(), rows(7, seed), rows(6, seed + 1)
    theta = drawn_theta(of_curves, seed)
    across = of_curves.slope_covariance(theta, a, b)
    K = np.block(
        [
            [of_curves.covariance(theta, a, a), across],
            [across.T, of_curves.slope_slope_covariance(theta, b, b)],
        ]
    )
    assert pytest.approx(K.T, rel=1e-9, abs=1e-12) == K
    assert np.diag(K)[:7] == pytest.approx(of_curves.variance(theta, a), rel=1e-12)
    scale = np.sqrt(np.diag(K))
    assert np.linalg.eigvalsh(K / np.outer(scale, scale)).min() > -1e-9


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_of_the_log_posterior_is_right(seed: int) -> None:
    of_curves, inputs = kernel(), rows(12, seed)
    targets = np.random.default_rng(seed).normal(size=(12, 1))
    theta = np.append(drawn_theta(of_curves, seed), np.log(0.05))
    value, gradient = log_posterior(of_curves, theta, inputs, targets)
    assert log_posterior_value(of_curves, theta, inputs, targets) == pytest.approx(value)
    numeric = [
        log_posterior_value(of_curves, theta + h, inputs, targets)
        - log_posterior_value(of_curves, theta - h, inputs, targets)
        for h in 1e-5 * np.eye(len(theta))
    ]
    assert gradient == pytest.approx(np.array(numeric) / 2e-5, rel=1e-6, abs=1e-6)


def test_gradients_by_inputs_are_right() -> None:
    of_curves, a, b = kernel(), rows(4, 0), rows(5, 1)
    theta, weights = drawn_theta(of_curves, 1), np.random.default_rng(0).normal(size=(4, 5))
    K, pull = of_curves.input_pullback(theta, a, b)
    assert pytest.approx(of_curves.covariance(theta, a, b)) == K

    def total(flat: np.ndarray) -> float:
        return float(np.sum(weights * of_curves.covariance(theta, flat.reshape(a.shape), b)))

    assert pull(weights).ravel() == pytest.approx(
        approx_fprime(a.ravel(), total, 1e-7), rel=1e-4, abs=1e-5
    )


def test_one_curve_alone_needs_no_kernel_within() -> None:
    alone, t = CurveKernel(None, 0, OF_TIME), np.linspace(0.1, 1, 4)
    theta = drawn_theta(OF_TIME, 0)
    K, pull = alone.pullback(theta, t[:, None])
    assert pytest.approx(OF_TIME.covariance(theta, t, t)) == K
    assert alone.variance(theta, t[:, None]) == pytest.approx(np.diag(K))
    assert alone.covariance(theta, t[:, None], t[:, None]) == pytest.approx(K)
    assert alone.slope_variance(theta, t[:, None]) == pytest.approx(
        np.diag(OF_TIME.slope_slope(theta, t, t))
    )
    assert pull(K).shape == (len(theta),)
    _, pull_inputs = alone.input_pullback(theta, t[:, None], t[:, None])
    assert pull_inputs(np.ones((4, 4))).shape == (4, 1)


@settings(max_examples=10)
@given(seed=st.integers(0, 10_000))
def test_covariances_over_pipelines_are_symmetric_and_positive(seed: int) -> None:
    assert INPUTS.within is not None
    of_curves = CurveKernel(INPUTS.within, INPUTS.width, OF_TIME)
    rng = np.random.default_rng(seed)
    inputs = INPUTS.at(INPUTS.candidates.sample(12, rng), rng.choice([0.02, 0.3, 1.0], 12))
    theta = drawn_theta(of_curves, seed)
    for K in (
        of_curves.covariance(theta, inputs, inputs),
        of_curves.slope_slope_covariance(theta, inputs, inputs),
    ):
        assert pytest.approx(K.T, rel=1e-12) == K
        assert np.linalg.eigvalsh(K).min() > -1e-9 * np.trace(K)
