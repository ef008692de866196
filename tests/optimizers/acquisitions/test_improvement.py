"""Expected improvement: of one point, with penalties, of logarithms, and of several points."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.stats import norm

from prefect_tune.optimizers.acquisitions.expected_improvement import (
    AugmentedImprovement,
    JointImprovement,
    expected_squared_excess,
    log_expected_improvement,
    log_normal_improvement,
    log_standard_improvement,
    log_standard_improvement_slope,
    sobol_normals,
)
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Constant
from prefect_tune.optimizers.surrogates.stationary import Matern52


def exact(u: float) -> float:
    with mpmath.workdps(80):
        value = mpmath.npdf(u) + mpmath.mpf(u) * mpmath.ncdf(u)
        return float(mpmath.log(value))


@given(st.floats(-1000, 10))
def test_it_agrees_with_eighty_digits(u: float) -> None:
    assert float(log_standard_improvement(u)) == pytest.approx(exact(u), abs=1e-7, rel=1e-12)


def test_it_is_continuous_and_rising_over_all_branches() -> None:
    for border in (-1.0, -1e4):
        near = log_standard_improvement(np.nextafter(border, [-np.inf, np.inf]))
        assert near[0] == pytest.approx(near[1], abs=1e-6)
    u = np.concatenate([-np.logspace(9, -3, 500), np.linspace(0, 40, 100)])
    assert (np.diff(log_standard_improvement(u)) > 0).all()


def test_improvement_by_less_than_xi_does_not_count() -> None:
    mean, deviation = np.array([18.0, 25.0]), np.array([1.0, 4.0])
    with_xi = log_expected_improvement(mean, deviation, 20.0, 3.0)
    assert with_xi == pytest.approx(log_expected_improvement(mean, deviation, 17.0))
    assert (with_xi < log_expected_improvement(mean, deviation, 20.0)).all()


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


def exact_of_logarithms(mean: float, deviation: float, best: float) -> float:
    """Hutter et al. 2009, equation 2, in four hundred digits."""
    with mpmath.workdps(400):
        m, s, f = map(mpmath.mpf, (mean, deviation, best))
        v = (f - m) / s
        kept = mpmath.exp(m + s * s / 2) * mpmath.ncdf(v - s)
        return float(mpmath.log(mpmath.exp(f) * mpmath.ncdf(v) - kept))


@pytest.mark.slow
@given(st.floats(-30, 30), st.floats(1e-5, 10), st.floats(-5, 5))
def test_it_agrees_with_many_digits(v: float, deviation: float, best: float) -> None:
    mean = best - v * deviation
    v = (best - mean) / deviation
    found = log_normal_improvement([best - v * deviation], [deviation], best)
    # The digits of the mean that were lost count v times.
    assert found[0] == pytest.approx(
        exact_of_logarithms(best - v * deviation, deviation, best), abs=1e-6, rel=1e-9
    )


NORMALS = sobol_normals(256, 8, np.random.default_rng(0))
MANY = sobol_normals(8192, 8, np.random.default_rng(0))


def joint(
    mean: list[float] | np.ndarray,
    covariance: np.ndarray,
    best: float,
    normals: np.ndarray = NORMALS,
) -> JointImprovement:
    return JointImprovement(
        np.array(mean), np.diag(covariance), lambda j: covariance[j], best, normals
    )


def of_two(correlation: float) -> JointImprovement:
    return joint([0.0, 0.0], np.array([[1, correlation], [correlation, 1]]), 0.0)


def candidates(seed: int, m: int = 6) -> tuple[np.ndarray, np.ndarray, float]:
    """Means, a covariance of low rank and some of its own, and a best score."""
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(m, 2))
    covariance = factors @ factors.T + np.diag(rng.uniform(0.05, 1.0, m))
    return rng.normal(size=m), covariance, float(rng.normal(0.5))


def greedily(improvement: JointImprovement, n: int) -> tuple[list[int], list[float]]:
    """The candidates that are chosen one after the other, and what each adds."""
    chosen: list[int] = []
    increments = []
    for _ in range(n):
        gains = improvement.gains()
        gains[chosen] = -np.inf
        chosen.append(int(gains.argmax()))
        increments.append(float(gains.max()))
        improvement.choose(chosen[-1])
    return chosen, increments


@pytest.mark.parametrize(("correlation", "increment"), [(0.0, 0.2820947918), (0.8, 0.1261564410)])
def test_worked_increments_of_two_standard_normals(correlation: float, increment: float) -> None:
    """Sheet, W6: the joint improvement of two is known in closed form."""
    improvement = of_two(correlation)
    assert improvement.gains() == pytest.approx([0.3989422804] * 2, abs=1e-10)
    improvement.choose(0)
    # 256 points of Sobol give it to a thousandth.
    assert improvement.gains()[1] == pytest.approx(increment, rel=1.5e-3)


@pytest.mark.parametrize("seed", range(4))
def test_the_greedy_sum_is_the_expected_improvement_of_the_set(seed: int) -> None:
    mean, covariance, best = candidates(seed)
    chosen, increments = greedily(joint(mean, covariance, best, MANY), 4)
    rng = np.random.default_rng(seed)
    drawn = rng.multivariate_normal(mean[chosen], covariance[np.ix_(chosen, chosen)], 200_000)
    gained = np.maximum(drawn.max(axis=1) - best, 0)
    error = gained.std() / np.sqrt(len(gained))
    # Four standard errors of the draws, and a thousandth for the Sobol points.
    assert sum(increments) == pytest.approx(gained.mean(), abs=4 * error + 1e-3 * gained.mean())


def test_normals_are_standard_and_the_same_for_a_seed() -> None:
    assert MANY.shape == (8192, 8)
    assert MANY.mean(axis=0) == pytest.approx(np.zeros(8), abs=1e-3)
    assert np.cov(MANY.T) == pytest.approx(np.eye(8), abs=5e-3)
    assert np.all(np.isfinite(MANY))
    assert np.array_equal(MANY, sobol_normals(8192, 8, np.random.default_rng(0)))
    assert not np.array_equal(MANY, sobol_normals(8192, 8, np.random.default_rng(1)))
