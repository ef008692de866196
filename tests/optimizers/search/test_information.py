"""Expected improvement, and the information gained by an evaluation."""

from dataclasses import replace

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.special import ndtr
from scipy.stats import norm

from prefect_tune.optimizers.models.fidelity_kernel import Latents
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.kernels import Constant, Matern52, Product
from prefect_tune.optimizers.search.entropy import (
    Minimizer,
    choose_representers,
    divergence_from_uniform,
    information_gain,
    whitened_normals,
)
from prefect_tune.optimizers.search.improvement import (
    FeasibleImprovement,
    JointImprovement,
    expected_improvement,
    log_expected_improvement,
    log_normal_improvement,
    log_standard_improvement,
    log_standard_improvement_slope,
    sobol_normals,
)


@settings(max_examples=40)
@given(st.one_of(st.floats(-1000, 10), st.floats(-1e9, -1000)))
@example(np.nextafter(-1e4, -np.inf))
@example(np.nextafter(-1.0, -np.inf))
def test_log_improvement_agrees_with_a_computation_in_eighty_digits(u: float) -> None:
    with mpmath.workdps(80):
        improvement = mpmath.npdf(u) + mpmath.mpf(u) * mpmath.ncdf(u)
        expected, slope = float(mpmath.log(improvement)), float(mpmath.ncdf(u) / improvement)
    assert float(log_standard_improvement(u)) == pytest.approx(expected, abs=1e-7, rel=1e-12)
    assert float(log_standard_improvement_slope(u)) == pytest.approx(slope, rel=1e-6)


def test_improvement_below_xi_does_not_count() -> None:
    mean, deviation = np.array([18.0, 25.0]), np.array([1.0, 4.0])
    with_xi = log_expected_improvement(mean, deviation, 20.0, 3.0)
    assert with_xi == pytest.approx(log_expected_improvement(mean, deviation, 17.0))
    assert (with_xi < log_expected_improvement(mean, deviation, 20.0)).all()
    assert np.log(expected_improvement(mean, deviation, 17.0)) == pytest.approx(with_xi)


@pytest.mark.parametrize("n_constraints", [0, 2])
def test_improvement_is_multiplied_by_the_probability_of_feasibility(n_constraints: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((12, 3))
    Y = np.column_stack([np.sin(5 * X[:, 0]), X[:, 1] ** 2, X[:, 2] * X[:, 0]])
    process = GaussianProcess.given(
        Product([Constant(), Matern52(range(3))]),
        np.log([1.0, 0.4, 0.7, 0.9, 0.01]),
        X,
        Y[:, : n_constraints + 1],
    )
    acquisition = FeasibleImprovement(process, -0.8)
    at, penalties = rng.random((3, 3)), np.array([0.0, 0.03, 0.2])
    score, gradient = acquisition.score_with_gradient(at, penalties)
    mean, deviation = process.predict(at)
    log_ei = log_expected_improvement(mean[:, 0] + penalties, deviation[:, 0], -0.8)
    feasible = norm.cdf(-mean[:, 1:] / deviation[:, 1:]).prod(axis=1)
    assert score == pytest.approx(log_ei - np.log(process.scale[0]) + np.log(feasible))
    assert score == pytest.approx(acquisition.score(at, penalties))
    for row in range(3):
        expected = approx_fprime(
            at[row], lambda x, p=penalties[[row]]: acquisition.score(x[None], p)[0], 1e-7
        )
        assert gradient[row] == pytest.approx(expected, rel=1e-3, abs=1e-3)


@settings(max_examples=25)
@given(st.floats(-30, 30), st.floats(1e-5, 10), st.floats(-5, 5))
def test_log_improvement_agrees_with_hutter_et_al_2009_to_many_digits(v, deviation, best) -> None:
    """Equation 2. A rounding error of the mean is magnified v times."""
    mean = best - v * deviation
    with mpmath.workdps(400):
        m, s, f = map(mpmath.mpf, (mean, deviation, best))
        kept = mpmath.exp(m + s * s / 2) * mpmath.ncdf((f - m) / s - s)
        expected = float(mpmath.log(mpmath.exp(f) * mpmath.ncdf((f - m) / s) - kept))
    found = log_normal_improvement([mean], [deviation], best)
    assert found[0] == pytest.approx(expected, abs=1e-6, rel=1e-9)


NORMALS = sobol_normals(256, 8, np.random.default_rng(0))
MANY = sobol_normals(8192, 8, np.random.default_rng(0))


def joint(mean, covariance, best, normals=NORMALS) -> JointImprovement:
    return JointImprovement(
        np.array(mean), np.diag(covariance), lambda j: covariance[j], best, normals
    )


def greedily(improvement: JointImprovement, n: int) -> tuple[list[int], list[float]]:
    """Return the candidates chosen one after the other, and the increment of each."""
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
def test_joint_increments_match_the_closed_form(correlation: float, increment: float) -> None:
    """The joint expected improvement of two candidates is known in closed form."""
    improvement = joint([0.0, 0.0], np.array([[1, correlation], [correlation, 1]]), 0.0)
    assert improvement.gains() == pytest.approx([0.3989422804] * 2, abs=1e-10)
    improvement.choose(0)
    # 256 points of Sobol give it to a thousandth.
    assert improvement.gains()[1] == pytest.approx(increment, rel=1.5e-3)


def test_greedy_sum_is_the_expected_improvement_of_the_set() -> None:
    rng = np.random.default_rng(0)
    factors = rng.normal(size=(6, 2))
    covariance = factors @ factors.T + np.diag(rng.uniform(0.05, 1.0, 6))
    mean, best = rng.normal(size=6), float(rng.normal(0.5))
    chosen, increments = greedily(joint(mean, covariance, best, MANY), 4)
    drawn = rng.multivariate_normal(mean[chosen], covariance[np.ix_(chosen, chosen)], 200_000)
    gained = np.maximum(drawn.max(axis=1) - best, 0)
    error = gained.std() / np.sqrt(len(gained))
    # Four standard errors of the draws, and a thousandth for the Sobol points.
    assert sum(increments) == pytest.approx(gained.mean(), abs=4 * error + 1e-3 * gained.mean())


def minimizer(mean: np.ndarray, V: np.ndarray, draws: int, seed: int = 0) -> Minimizer:
    return Minimizer.of(mean, V, whitened_normals(len(mean), draws, np.random.default_rng(seed)))


@given(st.integers(1, 60), st.integers(1, 200), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_whitened_normals_have_exact_moments(n: int, more: int, seed: int) -> None:
    normals = whitened_normals(n, n + more, np.random.default_rng(seed))
    assert normals.mean(axis=1) == pytest.approx(np.zeros(n), abs=1e-10)
    assert normals @ normals.T / (n + more) == pytest.approx(np.eye(n), abs=1e-9)


def test_probability_of_the_minimum_follows_the_difference_of_two_normals() -> None:
    mean = np.array([0.1400832002, -0.9503926815])
    V = np.array([[0.1273484837, -0.0576397510], [-0.0576397510, 0.4381023173]])
    worked = np.array([0.0931362481, 0.9068637519])
    assert ndtr(-1.3216867091) == pytest.approx(worked[0], abs=1e-9)
    found = minimizer(mean, V, 50_000)
    deviation = np.sqrt(worked[0] * worked[1] / 50_000)
    assert found.probabilities == pytest.approx(worked, abs=3 * deviation)
    assert found.entropy == pytest.approx(0.3097345, abs=3 * deviation * np.log(9.74))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_unit_of_the_loss_does_not_change_the_winners(scale: float) -> None:
    root = rng().normal(size=(6, 8))
    mean, V = rng(1).normal(size=6), root @ root.T
    one, other = minimizer(mean, V, 512), minimizer(mean * scale, V * scale**2, 512)
    assert (one.winners == other.winners).all()


def test_certain_values_give_zero_entropy() -> None:
    found = minimizer(np.array([0.3, 0.1, 0.2]), np.zeros((3, 3)), 100)
    assert found.probabilities.tolist() == [0, 1, 0]
    assert found.entropy == 0


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def draws_with_minima(minima: list[list[int]], n: int) -> np.ndarray:
    """Return draws (K, T, P) with these minima over a pool of n points."""
    draws = rng().uniform(size=(len(minima), len(minima[0]), n))
    k, t = np.indices(np.shape(minima))
    draws[k, t, minima] = -1.0
    return draws


@given(st.integers(1, 9), st.integers(1, 8), st.integers(1, 60), st.integers(1, 60), st.data())
@settings(max_examples=60, deadline=None)
def test_representers_are_distinct_and_as_many_as_requested(samples, draws, pool, n, data) -> None:
    source = rng(data.draw(st.integers(0, 2**32)))
    joint, improvement = source.normal(size=(samples, draws, pool)), source.normal(size=pool)
    chosen = choose_representers(joint, np.tile(improvement, (samples, 1)), n, source)
    assert len(set(chosen.tolist())) == len(chosen) == min(n, pool)
    assert ((chosen >= 0) & (chosen < pool)).all()


def test_minima_of_joint_draws_come_first_up_to_the_share_of_a_sample() -> None:
    """Expected improvement is least at these minima."""
    minima = [[7, 7, 31, 7, 12], [31, 2, 2, 2, 2]]
    improvement = np.zeros((2, 40))
    improvement[:, [7, 31, 12, 2]] = -1e4
    chosen = choose_representers(draws_with_minima(minima, 40), improvement, 10, rng())
    assert chosen[:4].tolist() == [7, 31, 12, 2]
    minima = [[0, 1, 1, 2, 3, 4, 5], [10, 11, 10, 12, 13, 14, 15]]
    improvement = np.zeros((2, 40))
    improvement[:, :20] = -1e4
    chosen = choose_representers(draws_with_minima(minima, 40), improvement, 10, rng())
    assert chosen[:6].tolist() == [0, 1, 2, 10, 11, 12]
    assert (chosen[6:] >= 20).all()


@pytest.mark.slow
def test_remaining_representers_are_drawn_by_improvement_without_replacement() -> None:
    """Rows 1 to 4 have weights 1, 2, 3, 4 over two samples, far below the range of exp."""
    weights = np.array([[0.5, 1.5, 0.5, 3.0], [0.5, 0.5, 2.5, 1.0]])
    improvement = np.hstack([np.full((2, 1), 10.0), np.log(weights)]) - 5000.0
    draws = draws_with_minima([[0], [0]], 5)
    source, repeats = rng(), 2000
    seconds = [choose_representers(draws, improvement, 3, source)[1:] for _ in range(repeats)]
    counts = np.bincount(np.concatenate(seconds), minlength=5)[1:] / repeats
    p = np.arange(1, 5) / 10
    expected = p * (1 + sum(q / (1 - q) for q in p) - p / (1 - p))
    assert counts == pytest.approx(expected, abs=5 * np.sqrt(0.25 / repeats))


SIZES = np.linspace(0, 1, 5)
BASIS = np.stack([np.ones(5), 1 - SIZES, SIZES**3], axis=1)
NOISES = 0.05 + 0.4 * (1 - SIZES) ** 2


def belief(n, candidates, seed, draws=512, spread=0.5) -> tuple[Minimizer, Latents]:
    """Return a joint normal belief of n representers and of the curves of some candidates."""
    rng, r = np.random.default_rng(seed), BASIS.shape[1]
    root = rng.normal(size=(n + candidates * r, n + 4)) / np.sqrt(n)
    K = root @ root.T + 0.02 * np.eye(len(root))
    minimizer = Minimizer.of(
        spread * rng.normal(size=n), K[:n, :n], whitened_normals(n, draws, rng)
    )
    blocks = [slice(n + c * r, n + (c + 1) * r) for c in range(candidates)]
    latents = Latents(
        rng.normal(size=(candidates, r)),
        np.stack([K[block, block] for block in blocks]),
        np.stack([K[block, :n] for block in blocks]),
    )
    return minimizer, latents


def of_difference(alpha: float, rho: float, draws: int) -> tuple[Minimizer, Latents, np.ndarray]:
    """Return two representers and an outcome correlated with their difference by rho.

    Returns belief, candidate and noise; alpha is the standardized difference of the means.
    """
    normals = whitened_normals(2, draws, np.random.default_rng(0))
    minimizer = Minimizer.of(np.array([0.0, alpha * np.sqrt(2)]), np.eye(2), normals)
    cross = np.array([[[rho, -rho]]]) / np.sqrt(2)
    latents = Latents(np.zeros((1, 1)), np.array([[[rho**2]]]), cross)
    return minimizer, latents, np.array([1 - rho**2])


@pytest.mark.parametrize(
    ("alpha", "rho", "by_quadrature", "by_closed_form"),
    [
        (0, 0.3, 0.029505, 0.029501),
        (0, 0.99, 0.591562, 0.489018),
        (1, 0.9, 0.246902, 0.233008),
        (2, 0.9, 0.065147, 0.061520),
    ],
)
def test_information_gain_matches_the_closed_form(alpha, rho, by_quadrature, by_closed_form):
    """The expected values come from half the log variances and from a quadrature of the entropy."""
    minimizer, latents, noise = of_difference(alpha, rho, 200_000)
    gain = information_gain(minimizer, latents, np.ones((1, 1)), noise)[0, 0]
    assert gain == pytest.approx(by_closed_form, abs=3e-3 * rho**2)
    assert gain <= by_quadrature + 1e-3


def by_loops(minimizer, latents, basis, noise) -> np.ndarray:
    """Return the same estimate by loops over candidates, sizes and winners."""
    draws = minimizer.normals.shape[1]
    gain = np.zeros((len(latents.mean), len(basis)))
    for c, m in np.ndindex(*gain.shape):
        f = basis[m]
        variance = f @ latents.covariance[c] @ f + noise[m]
        P = np.linalg.solve(minimizer.factor, f @ latents.cross[c])
        values = P @ minimizer.normals
        groups = [values[minimizer.winners == i] for i in np.unique(minimizer.winners)]
        scatters = [((g - g.mean()) ** 2).sum() for g in groups]
        pooled = sum(scatters) / (draws - len(groups))
        for group, scatter in zip(groups, scatters, strict=True):
            within = (scatter + 4 * pooled) / (len(group) + 3) * (draws - 1) / draws
            left = variance - P @ P + within
            gain[c, m] -= 0.5 * len(group) / draws * np.log(left / variance)
    return gain


@given(st.integers(1, 20), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_vectorized_information_gain_equals_the_loops(n: int, seed: int) -> None:
    minimizer, latents = belief(n, 4, seed, 64)
    found = information_gain(minimizer, latents, BASIS, NOISES)
    assert found == pytest.approx(by_loops(minimizer, latents, BASIS, NOISES), abs=1e-8)


def test_inconsistent_covariances_leave_at_least_the_noise() -> None:
    """The representers explain more than the noise-free variance of the outcome."""
    minimizer, latents, noise = of_difference(0.0, 0.99, 512)
    latents = replace(latents, cross=2 * latents.cross)
    gain = information_gain(minimizer, latents, np.ones((1, 1)), noise)[0, 0]
    assert np.isfinite(gain)
    assert gain <= -np.log(noise[0]) / 2


def test_divergence_from_uniform_is_taken_after_the_evaluation() -> None:
    minimizer, latents, noise = of_difference(0.5, 0.7, 100_000)
    gain = information_gain(minimizer, latents, np.ones((1, 1)), noise)
    p = minimizer.probabilities
    now = float((p * np.log(2 * p)).sum())
    assert divergence_from_uniform(minimizer, gain) == pytest.approx(now + gain)
    assert divergence_from_uniform(minimizer, gain)[0, 0] > 0.168
