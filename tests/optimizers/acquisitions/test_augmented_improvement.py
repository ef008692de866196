import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.stats import norm

from prefect_tune.optimizers.acquisitions.expected_improvement import (
    AugmentedImprovement,
    expected_improvement,
    expected_squared_excess,
    log_standard_improvement,
    log_standard_improvement_slope,
)
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Constant
from prefect_tune.optimizers.surrogates.stationary import Matern52


def test_worked_values() -> None:
    mean, deviation = np.array([0.2]), np.array([0.1])
    assert expected_improvement(mean, deviation, 0.25)[0] == pytest.approx(0.0697797, abs=1e-7)
    with_penalty = expected_improvement(mean + 0.03, deviation, 0.25)[0]
    assert with_penalty == pytest.approx(0.0506895, abs=1e-7)
    assert log_standard_improvement_slope(-5) == pytest.approx(5.361816, abs=1e-6)


@pytest.mark.parametrize("u", [-3e4, -2e3, -30.0, -5.0, -1.0, -0.5, 0.0, 2.0, 9.0])
def test_the_slope_is_that_of_the_logarithm(u: float) -> None:
    step = 1e-4 * max(1.0, abs(u))
    rise = log_standard_improvement(u + step) - log_standard_improvement(u - step)
    assert log_standard_improvement_slope(u) == pytest.approx(float(rise) / (2 * step), rel=1e-5)


@pytest.mark.parametrize(("mean", "deviation"), [(0.3, 0.2), (-0.5, 0.4), (-2.0, 0.3)])
def test_the_expected_squared_excess_is_the_integral(mean: float, deviation: float) -> None:
    value, by_mean, by_deviation = expected_squared_excess(np.array(mean), np.array(deviation))
    integral, _ = quad(lambda g: g**2 * norm.pdf(g, mean, deviation), 0, mean + 12 * deviation)
    assert float(value) == pytest.approx(integral, rel=1e-6, abs=1e-12)

    def at(x: np.ndarray) -> float:
        return float(expected_squared_excess(x[0], x[1])[0])

    expected = approx_fprime(np.array([mean, deviation]), at, 1e-7)
    assert [float(by_mean), float(by_deviation)] == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("n_constraints", [0, 2])
def test_gradients_agree_with_differences(n_constraints: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((12, 3))
    Y = np.column_stack([np.sin(5 * X[:, 0]), X[:, 1] ** 2, X[:, 2] * X[:, 0]])
    process = GaussianProcess.given(
        Constant() * Matern52(range(3)),
        np.log([1.0, 0.4, 0.7, 0.9, 0.01]),
        X,
        Y[:, : n_constraints + 1],
    )
    acquisition = AugmentedImprovement(process, -0.8, 10.0, np.array([-0.4, 0.1])[:n_constraints])
    at, penalties = rng.random((3, 3)), np.array([0.0, 0.03, 0.2])
    score, gradient = acquisition.score_with_gradient(at, penalties)
    assert score == pytest.approx(acquisition.score(at, penalties))
    for row in range(3):
        expected = approx_fprime(
            at[row], lambda x, p=penalties[[row]]: acquisition.score(x[None], p)[0], 1e-7
        )
        assert gradient[row] == pytest.approx(expected, rel=1e-3, abs=1e-3)
