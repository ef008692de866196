from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import norm

from prefect_tune.optimizers.acquisitions.entropy import Minimiser, whitened_normals


def posterior(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and a covariance, with negative entries, of some points."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n + 2)) / np.sqrt(n)
    return 0.5 * rng.normal(size=n), root @ root.T


def minimiser(mean: np.ndarray, V: np.ndarray, draws: int, seed: int = 0) -> Minimiser:
    return Minimiser.of(mean, V, whitened_normals(len(mean), draws, np.random.default_rng(seed)))


@given(st.integers(1, 60), st.integers(1, 200), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_whitened_normals_have_exact_moments(n: int, more: int, seed: int) -> None:
    normals = whitened_normals(n, n + more, np.random.default_rng(seed))
    assert normals.mean(axis=1) == pytest.approx(np.zeros(n), abs=1e-10)
    assert normals @ normals.T / (n + more) == pytest.approx(np.eye(n), abs=1e-9)


def test_whitened_normals_are_normal() -> None:
    normals = whitened_normals(5, 20_000, np.random.default_rng(0))
    for level in (-2.0, -0.5, 1.0):
        share = (normals < level).mean()
        assert share == pytest.approx(ndtr(level), abs=5 * np.sqrt(0.25 / 100_000))


def test_of_two_the_probability_is_that_of_their_difference() -> None:
    mean = np.array([0.1400832002, -0.9503926815])
    V = np.array([[0.1273484837, -0.0576397510], [-0.0576397510, 0.4381023173]])
    worked = np.array([0.0931362481, 0.9068637519])
    assert ndtr(-1.3216867091) == pytest.approx(worked[0], abs=1e-9)
    found = minimiser(mean, V, 50_000)
    deviation = np.sqrt(worked[0] * worked[1] / 50_000)
    assert found.probabilities == pytest.approx(worked, abs=3 * deviation)
    assert found.entropy == pytest.approx(0.3097345, abs=3 * deviation * np.log(9.74))


def test_three_alike_win_equally_often() -> None:
    found = minimiser(np.zeros(3), np.eye(3), 50_000)
    assert found.probabilities == pytest.approx(np.full(3, 1 / 3), abs=3 * np.sqrt(2 / 9 / 50_000))
    assert found.entropy == pytest.approx(np.log(3), abs=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_probabilities_are_those_of_plain_draws(seed: int) -> None:
    n, draws = 12, 20_000
    mean, V = posterior(n, seed)
    plain = np.random.default_rng(99).multivariate_normal(mean, V, 400_000).argmin(axis=1)
    p = np.bincount(plain, minlength=n) / 400_000
    error = np.sqrt(p * (1 - p) * (1 / draws + 1 / 400_000)) + 1e-6
    assert (np.abs(minimiser(mean, V, draws).probabilities - p) < 5 * error).all()


def test_over_the_outcomes_of_an_evaluation_probabilities_stay_what_they_are() -> None:
    """E p' = p, the tower property: outcomes are the mean of 41 equally likely ones."""
    mean, V = posterior(5, 1)
    b = V @ np.array([0.5, 0.1, -0.3, 0.4, 0.2])
    b /= np.sqrt(b @ np.linalg.solve(V, b) + 0.3)
    now = minimiser(mean, V, 40_000)
    outcomes = norm.ppf((np.arange(41) + 0.5) / 41)
    outcomes /= outcomes.std()
    later = [Minimiser.of(mean + b * w, V - np.outer(b, b), now.normals) for w in outcomes]
    expected = np.mean([m.probabilities for m in later], axis=0)
    assert expected == pytest.approx(now.probabilities, abs=5 * np.sqrt(0.25 / 40_000))
    assert np.ptp([m.probabilities for m in later], axis=0).max() > 0.1
    assert np.mean([m.entropy for m in later]) < now.entropy


def test_a_point_that_is_there_twice_shares_its_probability() -> None:
    """V is singular: the second point and the third are one."""
    V = np.array([[1.0, 0.2, 0.2], [0.2, 0.5, 0.5], [0.2, 0.5, 0.5]])
    twice = minimiser(np.zeros(3), V, 20_000)
    once = minimiser(np.zeros(2), V[:2, :2], 20_000)
    pair = twice.probabilities[1:].sum()
    assert pair == pytest.approx(once.probabilities[1], abs=5 * np.sqrt(0.5 / 20_000))


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e6])
def test_the_unit_of_the_loss_does_not_count(scale: float) -> None:
    mean, V = posterior(6, 2)
    one, other = minimiser(mean, V, 512), minimiser(mean * scale, V * scale**2, 512)
    assert (one.winners == other.winners).all()


def test_points_of_which_all_is_known_leave_no_doubt() -> None:
    found = minimiser(np.array([0.3, 0.1, 0.2]), np.zeros((3, 3)), 100)
    assert found.probabilities.tolist() == [0, 1, 0]
    assert found.entropy == 0


def test_equal_points_of_which_all_is_known_are_equally_likely() -> None:
    found = minimiser(np.full(4, 0.7), np.zeros((4, 4)), 20_000)
    assert found.probabilities == pytest.approx(np.full(4, 0.25), abs=0.02)


def test_a_single_point_is_the_minimiser() -> None:
    found = minimiser(np.array([0.4]), np.array([[0.3]]), 64)
    assert found.probabilities.tolist() == [1]
    assert found.entropy == 0


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(ValueError, match="5 draws of 5 points cannot be whitened; draw more"):
        whitened_normals(5, 5, np.random.default_rng(0))
    found = minimiser(np.zeros(3), np.eye(3), 10)
    with pytest.raises(ValueError, match="3 draws of 3 representers; more draws are needed"):
        replace(found, normals=np.eye(3), winners=found.winners[:3])


def test_shapes_that_do_not_fit_are_refused() -> None:
    normals = whitened_normals(3, 10, np.random.default_rng(0))
    with pytest.raises(ValueError, match="normals for 3 representers, not for 2"):
        Minimiser.of(np.zeros(2), np.eye(2), normals)
    found = Minimiser.of(np.zeros(3), np.eye(3), normals)
    with pytest.raises(ValueError, match=r"winners of 3 representers: shape \(9,\), not \(10,\)"):
        replace(found, winners=found.winners[:9])
