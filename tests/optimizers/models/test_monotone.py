"""Monotone Gaussian processes: sites, truncation and predictions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefect_tune.optimizers.models.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.kernels import Matern52
from prefect_tune.optimizers.models.monotone import (
    MonotoneProcess,
    Sites,
    at_times,
    needed_sites,
    propagate,
    site_times,
    truncation_ratio,
)

T_MAX = 50


def toy(seed: int, *, n: int = 8) -> tuple[GaussianProcess, np.ndarray]:
    """Return power laws, half of them cut at a fifth, and the points of the cut curves at t = 1."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 2))
    asymptote = 0.9 - 0.4 * (x[:, 0] - 0.3) ** 2
    rate = np.exp(3 * x[:, 1])
    rows, scores = [], []
    for i in range(n):
        for epoch in (1, 4, T_MAX // 5) if i % 2 else (1, T_MAX // 5, T_MAX):
            t = epoch / T_MAX
            rows.append([*x[i], t])
            power = asymptote[i] - (asymptote[i] - 0.1) * (1 + rate[i] * t / 1.2) ** -1.2
            scores.append(power + 0.005 * rng.normal())
    theta = np.log([0.5, 0.5, 1.0, 1.0, 1.0, 0.3, 1e-3])
    kernel = CurveKernel(Matern52([0, 1]), 2, Decay())
    process = GaussianProcess.given(kernel, theta, np.array(rows), np.array(scores))
    return process, np.column_stack([x[1::2], np.ones(n // 2)])


def monotone(process, unfinished, *, only_falling=False) -> MonotoneProcess:
    sites = at_times(unfinished, 2, site_times(T_MAX))
    return MonotoneProcess.of(process, sites, only_falling=only_falling)


def dense(on_sites: MonotoneProcess, a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the standardized mean, without the constant, and the covariance of f(a).

    The sites are observations nu / tau of slopes with noise 1 / tau.
    """
    process = on_sites.process
    kernel, theta = process.kernel, process.kernel_theta
    assert isinstance(kernel, CurveKernel)
    Z, V, tau = process.inputs, on_sites.sites, on_sites.beliefs.precision
    V, seen = V[tau > 0], (on_sites.beliefs.shift / np.where(tau > 0, tau, 1))[tau > 0]
    across = kernel.slope_covariance(theta, Z, V)
    K = np.block(
        [
            [kernel.covariance(theta, Z, Z), across],
            [across.T, kernel.slope_slope_covariance(theta, V, V)],
        ]
    )
    K += np.diag(np.append(process.noise_variance(Z), 1 / tau[tau > 0]))
    k = np.hstack([kernel.covariance(theta, a, Z), kernel.slope_covariance(theta, a, V)])
    residuals = process.factor @ process.centered()[1][:, 0]
    mean = k @ np.linalg.solve(K, np.append(residuals, seen))
    return mean, kernel.covariance(theta, a, a) - k @ np.linalg.solve(K, k.T)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_monotone_process_agrees_with_the_dense_formula(seed: int) -> None:
    process, unfinished = toy(seed)
    on_sites = monotone(process, unfinished)
    rows = np.random.default_rng(seed).random((5, 3))
    mean, covariance = dense(on_sites, rows)
    latent = (on_sites.predict(rows)[0] - process.offset) / on_sites.scale
    assert latent - process.centered()[0] == pytest.approx(mean, abs=1e-6)
    prior = process.kernel.covariance(process.kernel_theta, rows, rows)
    half = on_sites.predict_half(rows)[1]
    assert prior - half.T @ half == pytest.approx(covariance, abs=1e-6)
    assert on_sites.predict(rows)[1] == pytest.approx(
        on_sites.scale * np.sqrt(np.diag(covariance)), abs=1e-5
    )


def slopes(on_sites: MonotoneProcess, rows: np.ndarray) -> np.ndarray:
    """Return slopes by differences of the means."""
    step = 1e-5 * np.eye(rows.shape[1])[-1]
    return (on_sites.predict(rows + step)[0] - on_sites.predict(rows - step)[0]) / 2e-5


def test_monotone_mean_never_falls_where_the_plain_mean_does() -> None:
    times, plain = np.linspace(1 / T_MAX, 1.0, 50), 0

    def falls(means: np.ndarray) -> int:
        return int((np.diff(means.reshape(-1, len(times)), axis=1) < -1e-9).sum())

    for seed in range(5):
        process, unfinished = toy(seed)
        rows = at_times(unfinished, 2, times)
        plain += falls(process.predict(rows)[0])
        for only_falling in (True, False):
            on_sites = monotone(process, unfinished, only_falling=only_falling)
            assert falls(on_sites.predict(rows)[0]) == 0
    assert plain > 0


def two_curves(second: float) -> tuple[GaussianProcess, np.ndarray]:
    """Return a falling curve, a curve that rises by `second`, and the ends of both curves."""
    kernel = CurveKernel(Matern52([0]), 1, Decay())
    theta = np.log([0.5, 1.0, 1.0, 1.0, 0.3, 1e-3])
    inputs = np.array([[0, 0.02], [0, 0.2], [1, 0.02], [1, 0.2]])
    values = np.array([0.5, 0.4, 0.5, 0.5 + second])
    process = GaussianProcess.given(kernel, theta, inputs, values, mean=0.5, scale=0.1)
    return process, np.array([[0, 1.0], [1, 1.0]])


def test_sites_are_placed_only_where_the_mean_falls() -> None:
    process, ends = two_curves(second=0.1)
    on_sites = MonotoneProcess.of(process, ends)
    assert on_sites.sites.tolist() == [[0.0, 1.0]]
    assert (slopes(MonotoneProcess.of(process, ends[:0]), ends) < 0).tolist() == [True, False]
    assert (slopes(on_sites, ends) >= 0).all()
    everywhere = MonotoneProcess.of(process, ends, only_falling=False)
    assert (everywhere.predict(ends)[0] > on_sites.predict(ends)[0]).all()


def test_constant_mean_is_added_to_predictions() -> None:
    process, rows = toy(2)
    mean = float(rows.sum())
    inputs, kernel = process.inputs, process.kernel
    flat = GaussianProcess.given(kernel, process.theta, inputs, np.full(24, mean), mean=mean)
    plain = MonotoneProcess.of(flat, rows[:0])
    assert plain.predict(rows)[0] == pytest.approx([mean] * 4)


def test_site_times_are_spaced_logarithmically() -> None:
    assert site_times(50) == pytest.approx([0.02, 1.0])
    assert site_times(100, 3) == pytest.approx([0.01, 0.1, 1.0])
    rows = at_times(np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0]]), 1, np.array([0.1, 1.0]))
    assert rows.tolist() == [[1, 0.1, 2], [1, 1.0, 2], [3, 0.1, 4], [3, 1.0, 4]]


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), s=st.integers(1, 10))
def test_truncation_at_the_needed_sites_leaves_no_negative_mean(seed: int, s: int) -> None:
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(size=s), rng.normal(size=(s, s + 1))
    covariance = root @ root.T / (s + 1) + 0.05 * np.eye(s)
    chosen, sites = needed_sites(mean, covariance)
    inner = covariance[np.ix_(chosen, chosen)]
    pull = sites.pull(mean[chosen], inner, sites.factor(inner)) if len(chosen) else np.zeros(0)
    assert (mean + covariance[:, chosen] @ pull >= -1e-9).all()
    assert len(set(chosen)) == len(chosen) <= s
    assert sites.precision == pytest.approx(propagate(mean[chosen], inner).precision, rel=0.02)


def test_least_likely_site_comes_first() -> None:
    covariance = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    chosen, _ = needed_sites(np.array([-0.3, -1.0, -0.5]), covariance)
    assert chosen.tolist() == [1, 2]
    chosen, _ = needed_sites(np.array([-0.5, -1.0]), np.diag([1.0, 100.0]))
    assert chosen.tolist() == [0, 1]
    assert not len(needed_sites(np.array([0.1, 2.0]), np.eye(2))[0])


def truncated(mean, covariance, sites) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance with the sites, by adding precisions."""
    inverse = np.linalg.inv(covariance)
    S = np.linalg.inv(inverse + np.diag(sites.precision))
    return S @ (inverse @ mean + sites.shift), S


def drawn(s: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(s, s + 1))
    return rng.normal(size=s), root @ root.T / (s + 1) + 0.05 * np.eye(s)


def test_truncation_at_one_site_matches_worked_values() -> None:
    """The truncation at one site is exact, by Mills' ratio."""
    sites = propagate(np.array([-1.0]), np.array([[4.0]]))
    assert sites.precision[0] == pytest.approx(0.681167, abs=1e-5)
    assert sites.shift[0] == pytest.approx(1.443900, abs=1e-5)
    worked = (-1.0, 4.0, 1.2821555, 1.0739216), (-8.0, 1.0, 0.1213681, 0.0143249)
    for m, v, of_truth, left in worked:
        mean, covariance = np.array([m]), np.array([[v]])
        moments = truncated(mean, covariance, propagate(mean, covariance))
        assert moments[0][0] == pytest.approx(of_truth, abs=1e-5)
        assert moments[1][0, 0] == pytest.approx(left, abs=1e-5)


def test_truncation_at_two_sites_matches_worked_values() -> None:
    covariance = np.array([[1.0, 0.5], [0.5, 1.0]])
    sites = propagate(np.zeros(2), covariance)
    assert sites.precision == pytest.approx([1.35055] * 2, rel=1e-4)
    assert sites.shift == pytest.approx([1.80926] * 2, rel=1e-4)
    mean, S = truncated(np.zeros(2), covariance, sites)
    assert mean == pytest.approx([0.896908] * 2, rel=1e-4)
    assert np.diag(S) == pytest.approx([0.397095] * 2, rel=1e-4)
    assert S[0, 1] == pytest.approx(0.098637, rel=1e-4)


def test_truncation_ratio_is_accurate_and_continuous_in_the_far_tail() -> None:
    """The second value would lose all digits if computed as a difference."""
    worked = {
        0.0: (0.7978846, 0.3633802),
        -5.0: (5.186504, 0.0326964),
        -12.5: (12.5790072, 0.0061673),
        -40.0: (40.0249688, 0.0006227),
    }
    for z, (ratio, left) in worked.items():
        assert truncation_ratio(z) == pytest.approx((ratio, left), abs=2e-6)
    above, below = truncation_ratio(-12.0 + 1e-9), truncation_ratio(-12.0)
    assert above == pytest.approx(below, rel=3e-4)
    assert below[1] > truncation_ratio(-1e5)[1] > 0


def test_already_satisfied_constraints_have_no_effect() -> None:
    """From 8 deviations on, the effect is exactly zero."""
    covariance = drawn(4, seed=1)[1]
    sites = propagate(8.5 * np.sqrt(np.diag(covariance)), covariance)
    assert not sites.precision.any()
    assert not sites.shift.any()
    mean, covariance = np.array([-1.0, 0.5, 0.0]), np.zeros((3, 3))
    covariance[0, 0] = 4.0
    covariance[1, 1] = 1e-15
    sites = propagate(mean, covariance)
    assert sites.precision == pytest.approx([0.681167, 0.0, 0.0], abs=1e-5)


def test_invalid_starting_values_of_the_truncation_are_ignored() -> None:
    mean, covariance = drawn(3, seed=4)
    broken = Sites(np.full(3, 1.0), np.array([np.inf, 0.0, 0.0]))
    found, cold = propagate(mean, covariance, start=broken), propagate(mean, covariance)
    assert found.precision == pytest.approx(cold.precision)


def test_adding_sites_keeps_earlier_sites() -> None:
    process, ends = two_curves(second=-0.05)
    first = MonotoneProcess.of(process, ends[:1])
    both = first.with_sites(ends)
    assert both.sites.tolist() == [[0.0, 1.0], [1.0, 1.0]]
    assert both.beliefs.precision[0] == first.beliefs.precision[0]
    assert (slopes(both, ends) >= 0).all()
