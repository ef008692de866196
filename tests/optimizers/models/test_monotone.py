"""Monotone Gaussian processes: truncated slopes, sites and predictions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from prefect_tune.optimizers.models.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.kernels import RBF, Matern52
from prefect_tune.optimizers.models.monotone import MonotoneProcess, at_times, truncated_moments

T_MAX = 50
ENDS = np.array([1 / T_MAX, 1.0])


def truncated(mean: list[float], covariance: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of a normal distribution truncated to nonnegative entries."""
    factor = np.linalg.cholesky(covariance)
    center, spread = truncated_moments(np.array(mean), factor)
    return mean + factor @ center, factor @ spread @ factor.T


@pytest.mark.parametrize(
    ("mean", "covariance", "worked", "deviations"),
    [
        # One entry: exact, by Mills' ratio.
        ([-1.0], [[4.0]], [1.2821555], [1.0739216**0.5]),
        ([-8.0], [[1.0]], [0.1213681], [0.0143249**0.5]),
        # Two entries: by quadrature. Others: by rejection, from at least 2e7 draws.
        ([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]], [0.8976201] * 2, [0.4010264**0.5] * 2),
        (
            [-0.9109239, 0.0278731],
            [[3.6274804, -0.0674681], [-0.0674681, 0.0215174]],
            [1.1252, 0.11027],
            [0.92445, 0.08433],
        ),
        (
            [-1.023594, -0.879374, 0.150034],
            [
                [1.924862, 2.354300, -0.607124],
                [2.354300, 7.009862, 2.621327],
                [-0.607124, 2.621327, 6.841786],
            ],
            [0.796571, 2.826669, 2.001294],
            [0.649407, 1.667494, 1.506209],
        ),
    ],
)
def test_moments_of_truncated_slopes_match_worked_values(
    mean: list[float], covariance: list[list[float]], worked: list[float], deviations: list[float]
) -> None:
    found, spread = truncated(mean, covariance)
    assert found == pytest.approx(worked, rel=2e-3)
    assert np.sqrt(np.diag(spread)) == pytest.approx(deviations, rel=6e-3)
    if covariance == [[1.0, 0.5], [0.5, 1.0]]:
        assert spread[0, 1] == pytest.approx(0.1077748, rel=0.02)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_moments_of_truncated_slopes_agree_with_rejection(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(3, 4))
    mean, covariance = rng.normal(size=3), root @ root.T / 4 + 0.05 * np.eye(3)
    draws = rng.multivariate_normal(mean, covariance, size=400_000)
    kept = draws[(draws >= 0).all(axis=1)]
    if len(kept) < 5_000:
        return
    found, spread = truncated(mean, covariance)
    deviations = kept.std(axis=0)
    assert (found - kept.mean(axis=0)) / deviations == pytest.approx(0, abs=0.06)
    assert np.sqrt(np.diag(spread)) / deviations == pytest.approx(1, abs=0.04)


def test_many_unlikely_slopes_have_accurate_means() -> None:
    """Slopes with one common factor are independent given the factor, which is integrated out."""
    s, mean, correlation = 40, -1.0, 0.5
    factor = np.linspace(-8, 12, 2001)
    center, deviation = mean + np.sqrt(correlation) * factor, np.sqrt(1 - correlation)
    z = center / deviation
    density = np.exp(norm.logpdf(factor) + s * norm.logcdf(z) + 30)
    expected = center + deviation * np.exp(norm.logpdf(z) - norm.logcdf(z))
    exact = (density * expected).sum() / density.sum()
    covariance = np.full((s, s), correlation) + (1 - correlation) * np.eye(s)
    found, _ = truncated([mean] * s, covariance.tolist())
    assert found == pytest.approx([exact] * s, abs=0.05)


def test_satisfied_constraints_have_no_effect() -> None:
    found, spread = truncated([9.0, 9.0], [[1.0, 0.3], [0.3, 1.0]])
    assert found == pytest.approx([9.0, 9.0], abs=1e-3)
    assert spread == pytest.approx(np.array([[1.0, 0.3], [0.3, 1.0]]), abs=0.01)


def test_constrained_curve_matches_the_worked_example() -> None:
    """The second of two configurations is known to fall at first; its slopes are constrained."""
    theta = np.log([1.0, 0.5, 1.0, 1.0, 0.3, 1e-3])
    second = np.sqrt(2 * np.log(2))  # the kernel of the two configurations is 0.5
    inputs = [[0, 0.1], [0, 0.5], [0, 1], [second, 0.1], [second, 0.2]]
    process = GaussianProcess.given(
        CurveKernel(RBF([0]), 1, Decay()),
        theta,
        np.array(inputs),
        np.array([0.3, 0.6, 0.7, 0.50, 0.46]),
        scale=1.0,
    )
    rows = np.array([[second, 0.2], [second, 0.6], [second, 1.0]])
    plain = MonotoneProcess.of(process, rows[:0]).predict(rows)
    assert plain[0] == pytest.approx([0.4658284, 0.4530219, 0.4643294], abs=1e-6)
    assert plain[1] == pytest.approx([0.0306633, 0.1285710, 0.1916800], abs=1e-6)
    mean, deviation = MonotoneProcess.of(process, at_times(rows[:1], 1, ENDS)).predict(rows)
    assert mean == pytest.approx([0.480899, 0.496700, 0.542069], rel=2e-3)
    assert deviation == pytest.approx([0.029061, 0.107614, 0.141110], rel=4e-3)


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


def test_monotone_mean_never_falls_where_the_plain_mean_does() -> None:
    times, plain = np.linspace(1 / T_MAX, 1.0, 50), 0

    def falls(means: np.ndarray) -> int:
        return int((np.diff(means.reshape(-1, len(times)), axis=1) < -1e-9).sum())

    for seed in range(5):
        process, unfinished = toy(seed)
        rows = at_times(unfinished, 2, times)
        plain += falls(process.predict(rows)[0])
        on_sites = MonotoneProcess.of(process, at_times(unfinished, 2, ENDS))
        assert falls(on_sites.predict(rows)[0]) == 0
    assert plain > 0


def test_constant_mean_is_added_to_predictions() -> None:
    process, rows = toy(2)
    mean = float(rows.sum())
    inputs, kernel = process.inputs, process.kernel
    flat = GaussianProcess.given(kernel, process.theta, inputs, np.full(24, mean), mean=mean)
    plain = MonotoneProcess.of(flat, rows[:0])
    assert plain.predict(rows)[0] == pytest.approx([mean] * 4)


def test_each_input_is_repeated_at_each_time() -> None:
    rows = at_times(np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0]]), 1, np.array([0.1, 1.0]))
    assert rows.tolist() == [[1, 0.1, 2], [1, 1.0, 2], [3, 0.1, 4], [3, 1.0, 4]]
