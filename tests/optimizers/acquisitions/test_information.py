"""What an evaluation tells of the minimiser, and the points that stand for the space."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import ndtr, xlogy
from scipy.stats import norm

from prefect_tune.optimizers.acquisitions.entropy import (
    Minimiser,
    choose_representers,
    divergence_from_uniform,
    information_gain,
    whitened_normals,
)
from prefect_tune.optimizers.surrogates.fidelity_kernel import Latents


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


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def draws_with_minima(minima: list[list[int]], n: int) -> np.ndarray:
    """Draws (K, T, P) whose minima over a pool of n points are these."""
    draws = rng().uniform(size=(len(minima), len(minima[0]), n))
    k, t = np.indices(np.shape(minima))
    draws[k, t, minima] = -1.0
    return draws


@given(st.integers(1, 9), st.integers(1, 8), st.integers(1, 60), st.integers(1, 60), st.data())
@settings(max_examples=60, deadline=None)
def test_they_are_as_many_as_asked_for_and_all_different(
    samples: int, draws: int, pool: int, n: int, data: st.DataObject
) -> None:
    source = rng(data.draw(st.integers(0, 2**32)))
    joint, improvement = source.normal(size=(samples, draws, pool)), source.normal(size=pool)
    chosen = choose_representers(joint, np.tile(improvement, (samples, 1)), n, source)
    assert len(set(chosen.tolist())) == len(chosen) == min(n, pool)
    assert ((chosen >= 0) & (chosen < pool)).all()


def test_the_minima_of_joint_draws_come_first() -> None:
    """Where expected improvement sees nothing: it is least there."""
    minima = [[7, 7, 31, 7, 12], [31, 2, 2, 2, 2]]
    improvement = np.zeros((2, 40))
    improvement[:, [7, 31, 12, 2]] = -1e4
    chosen = choose_representers(draws_with_minima(minima, 40), improvement, 10, rng())
    assert chosen[:4].tolist() == [7, 31, 12, 2]


def test_a_sample_gives_up_to_its_share_of_six_tenths() -> None:
    minima = [[0, 1, 1, 2, 3, 4, 5], [10, 11, 10, 12, 13, 14, 15]]
    improvement = np.zeros((2, 40))
    improvement[:, :20] = -1e4
    chosen = choose_representers(draws_with_minima(minima, 40), improvement, 10, rng())
    assert chosen[:6].tolist() == [0, 1, 2, 10, 11, 12]
    assert (chosen[6:] >= 20).all()


def test_of_more_samples_than_representers_each_gives_one_until_there_are_enough() -> None:
    draws = draws_with_minima([[i] for i in range(6)], 8)
    chosen = choose_representers(draws, np.zeros((6, 8)), 4, rng())
    assert chosen.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("level", [0.0, -5000.0])
def test_the_rest_is_drawn_by_improvement_without_replacement(level: float) -> None:
    """Rows 1 to 4 have weights 1, 2, 3, 4 summed over two samples, far below what exp can say."""
    weights = np.array([[0.5, 1.5, 0.5, 3.0], [0.5, 0.5, 2.5, 1.0]])
    improvement = np.hstack([np.full((2, 1), 10.0), np.log(weights)]) + level
    draws = draws_with_minima([[0], [0]], 5)
    source, repeats = rng(), 4000
    seconds = [choose_representers(draws, improvement, 3, source)[1:] for _ in range(repeats)]
    counts = np.bincount(np.concatenate(seconds), minlength=5)[1:] / repeats
    p = np.arange(1, 5) / 10
    expected = p * (1 + sum(q / (1 - q) for q in p) - p / (1 - p))
    assert counts == pytest.approx(expected, abs=5 * np.sqrt(0.25 / repeats))


def test_points_without_improvement_come_last() -> None:
    improvement = np.full((1, 6), -np.inf)
    improvement[0, [2, 4]] = -700.0
    for seed in range(20):
        chosen = choose_representers(draws_with_minima([[0]], 6), improvement, 4, rng(seed))
        assert set(chosen[1:3].tolist()) == {2, 4}


def test_the_same_random_numbers_give_the_same_points() -> None:
    draws, improvement = rng(1).normal(size=(3, 4, 50)), rng(2).normal(size=(3, 50))
    one, again = (choose_representers(draws, improvement, 20, rng(5)) for _ in range(2))
    assert (one == again).all()
    assert (one != choose_representers(draws, improvement, 20, rng(6))).any()


def test_bad_draws_are_refused() -> None:
    draws, improvement = np.zeros((2, 3, 4)), np.zeros((2, 4))
    with pytest.raises(ValueError, match=r"draws of shape \(2, 3, 4\) and improvements of shape"):
        choose_representers(draws, improvement[:, :3], 2, rng())
    with pytest.raises(ValueError, match="0 representers; ask for 1 or more"):
        choose_representers(draws, improvement, 0, rng())
    with pytest.raises(ValueError, match="is NaN"):
        choose_representers(draws, improvement * np.nan, 2, rng())


def phi(s: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(s), 1 - s, s**3], axis=1)


SIZES = np.linspace(0, 1, 5)


BASIS = phi(SIZES)


def noise_at(s: np.ndarray) -> np.ndarray:
    variance: np.ndarray = 0.05 + 0.4 * (1 - s) ** 2
    return variance


def belief(
    n: int, candidates: int, seed: int, draws: int = 512, spread: float = 0.5
) -> tuple[Minimiser, Latents]:
    """A joint normal belief of n representers and of the curves of some candidates."""
    rng, r = np.random.default_rng(seed), BASIS.shape[1]
    root = rng.normal(size=(n + candidates * r, n + 4)) / np.sqrt(n)
    K = root @ root.T + 0.02 * np.eye(len(root))
    minimiser = Minimiser.of(
        spread * rng.normal(size=n), K[:n, :n], whitened_normals(n, draws, rng)
    )
    blocks = [slice(n + c * r, n + (c + 1) * r) for c in range(candidates)]
    latents = Latents(
        rng.normal(size=(candidates, r)),
        np.stack([K[block, block] for block in blocks]),
        np.stack([K[block, :n] for block in blocks]),
    )
    return minimiser, latents


def of_difference(alpha: float, rho: float, draws: int) -> tuple[Minimiser, Latents, np.ndarray]:
    """Two representers and an outcome of variance 1 whose correlation with their difference is rho.

    Returns belief, candidate and noise; alpha is the standardised difference of the means.
    """
    normals = whitened_normals(2, draws, np.random.default_rng(0))
    minimiser = Minimiser.of(np.array([0.0, alpha * np.sqrt(2)]), np.eye(2), normals)
    cross = np.array([[[rho, -rho]]]) / np.sqrt(2)
    latents = Latents(np.zeros((1, 1)), np.array([[[rho**2]]]), cross)
    return minimiser, latents, np.array([1 - rho**2])


def closed_form(alpha: float, rho: float) -> float:
    P = ndtr(alpha)
    h1, h2 = norm.pdf(alpha) / P, norm.pdf(alpha) / (1 - P)
    one, two = 1 - rho**2 * h1 * (h1 + alpha), 1 - rho**2 * h2 * (h2 - alpha)
    return float(-0.5 * (P * np.log(one) + (1 - P) * np.log(two)))


def exact(alpha: float, rho: float) -> float:
    def entropy(p: float) -> float:
        return float(-xlogy(p, p) - xlogy(1 - p, 1 - p))

    def later(omega: float) -> float:
        return norm.pdf(omega) * entropy(ndtr((alpha + rho * omega) / np.sqrt(1 - rho**2)))

    return entropy(ndtr(alpha)) - quad(later, -9, 9, points=[-alpha / rho], limit=200)[0]


@pytest.mark.parametrize(
    ("alpha", "rho", "by_quadrature", "by_closed_form"),
    [
        (0, 0.3, 0.029505, 0.029501),
        (0, 0.7, 0.188369, 0.186942),
        (0, 0.99, 0.591562, 0.489018),
        (0.5, 0.7, 0.170250, 0.168753),
        (1, 0.5, 0.058726, 0.058591),
        (1, 0.9, 0.246902, 0.233008),
        (2, 0.5, 0.016970, 0.016918),
        (2, 0.9, 0.065147, 0.061520),
    ],
)
def test_of_two_representers_it_is_the_closed_form(
    alpha: float, rho: float, by_quadrature: float, by_closed_form: float
) -> None:
    assert closed_form(alpha, rho) == pytest.approx(by_closed_form, abs=1e-6)
    assert exact(alpha, rho) == pytest.approx(by_quadrature, abs=1e-6)
    minimiser, latents, noise = of_difference(alpha, rho, 200_000)
    gain = information_gain(minimiser, latents, np.ones((1, 1)), noise)[0, 0]
    assert gain == pytest.approx(by_closed_form, abs=3e-3 * rho**2)
    assert gain <= by_quadrature + 1e-3


def matern(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    distance = (((a[:, None] - b[None]) / [0.4, 0.8]) ** 2).sum(axis=2)
    q = np.sqrt(5 * distance)
    return (1 + q + q**2 / 3) * np.exp(-q)


def learned(
    x: np.ndarray, s: list[float], y: list[float], at: np.ndarray, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of phi's weights at points, phi(s) = (1, (1 - s)^2): of[i]'g(at[i]), densely."""
    sigma = np.array([[0.81, -0.27], [-0.27, 0.34]])
    seen = np.stack([np.ones(len(s)), (1 - np.array(s)) ** 2], axis=1)
    K = matern(x, x) * (seen @ sigma @ seen.T) + (0.01 + 1e-9) * np.eye(len(s))
    cross = matern(at, x) * (of @ sigma @ seen.T)
    prior = matern(at, at) * (of @ sigma @ of.T)
    return cross @ np.linalg.solve(K, y), prior - cross @ np.linalg.solve(K, cross.T)


def test_a_worked_example_from_data_to_gain() -> None:
    x, s, y = np.array([[0.2, 0.5], [0.5, 0.1]]), [0.2, 0.7], [1.0, -1.0]
    # Two representers at s = 1, then both weights of the candidate's curve.
    at = np.array([[0.3, 0.3], [0.8, 0.2], [0.4, 0.4], [0.4, 0.4]])
    of = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    mean, K = learned(x, s, y, at, of)
    assert mean[:2] == pytest.approx([0.1400832002, -0.9503926815], abs=1e-9)
    basis, noise = np.array([[1.0, 0.49]]), np.array([0.01 + 1e-9])
    latents = Latents(mean[None, 2:], K[None, 2:, 2:], K[None, 2:, :2])
    assert basis @ latents.mean[0] == pytest.approx([0.0310808385], abs=1e-9)
    variance = float(basis[0] @ latents.covariance[0] @ basis[0] + noise[0])
    b = basis[0] @ latents.cross[0] / np.sqrt(variance)
    assert variance == pytest.approx(0.0941646351, abs=2e-9)
    assert b == pytest.approx([0.0936081129, -0.0114681608], abs=1e-9)
    # An outcome one deviation above the mean moves the representers as a fit with it does.
    outcome = float(basis[0] @ latents.mean[0]) + np.sqrt(variance)
    later, V = learned(np.vstack([x, at[2]]), [*s, 0.3], [*y, outcome], at[:2], of[:2])
    assert mean[:2] + b == pytest.approx(later, abs=1e-12)
    assert K[:2, :2] - np.outer(b, b) == pytest.approx(V, abs=1e-12)
    normals = whitened_normals(2, 200_000, np.random.default_rng(0))
    now = Minimiser.of(mean[:2], K[:2, :2], normals)
    gain = information_gain(now, latents, basis, noise)[0, 0]
    assert closed_form(-1.3216867091, -0.1273553) == pytest.approx(0.0026727542, abs=2e-9)
    assert exact(-1.3216867091, -0.1273553) == pytest.approx(0.0026727808, abs=2e-9)
    assert gain == pytest.approx(0.0026727542, abs=2e-4)


def by_nested_draws(
    minimiser: Minimiser, xi: np.ndarray, latents: Latents, basis: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """The gain with each of some outcomes imagined, and the winners counted again.

    Draws are moved to where an outcome puts them; xi are the normals of what they do not tell of y.
    """
    L, U = minimiser.factor, minimiser.normals
    F = minimiser.mean[:, None] + L @ U
    outcomes = norm.ppf((np.arange(31) + 0.5) / 31)
    outcomes /= outcomes.std()
    gain = np.empty((len(latents.mean), len(basis)))
    for c, m in np.ndindex(*gain.shape):
        f = basis[m]
        beta, variance = f @ latents.cross[c], f @ latents.covariance[c] @ f + noise[m]
        a, b = np.linalg.solve(L, beta) / np.sqrt(variance), beta / np.sqrt(variance)
        assert a @ a <= 1
        eta = a @ U + np.sqrt(1 - a @ a) * xi
        later = 0.0
        for omega in outcomes:
            p = np.bincount((F + b[:, None] * (omega - eta)).argmin(axis=0)) / U.shape[1]
            later -= xlogy(p, p).sum() / len(outcomes)
        gain[c, m] = minimiser.entropy - later
    return gain


@pytest.mark.parametrize("seed", [0, 1])
def test_it_agrees_with_nested_monte_carlo(seed: int) -> None:
    minimiser, latents = belief(8, 6, seed)
    *U, xi = whitened_normals(9, 40_000, np.random.default_rng(2))
    V = minimiser.factor @ minimiser.factor.T
    minimiser = Minimiser.of(minimiser.mean, V, np.array(U))
    few, noise = BASIS[[0, 3]], np.array([0.5, 1.0])
    found = information_gain(minimiser, latents, few, noise)
    nested = by_nested_draws(minimiser, xi, latents, few, noise)
    assert nested.max() > 0.05
    assert np.sqrt(((found - nested) ** 2).mean()) < 0.003
    assert np.corrcoef(found.ravel(), nested.ravel())[0, 1] > 0.995


def test_512_draws_rank_candidates_as_many_draws_do() -> None:
    few, latents = belief(30, 40, 3)
    size = np.geomspace(0.05, 2, 40)[:, None, None]
    latents = Latents(latents.mean, size**2 * latents.covariance, size * latents.cross)
    V = few.factor @ few.factor.T
    many = Minimiser.of(few.mean, V, whitened_normals(30, 40_000, np.random.default_rng(9)))
    one, other = (information_gain(m, latents, BASIS, noise_at(SIZES)) for m in (few, many))
    assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.95
    assert other.ravel()[one.argmax()] > 0.7 * other.max()


def by_loops(
    minimiser: Minimiser, latents: Latents, basis: np.ndarray, noise: np.ndarray
) -> np.ndarray:
    """The same estimate a candidate, a size and a winner at a time."""
    draws = minimiser.normals.shape[1]
    gain = np.zeros((len(latents.mean), len(basis)))
    for c, m in np.ndindex(*gain.shape):
        f = basis[m]
        variance = f @ latents.covariance[c] @ f + noise[m]
        P = np.linalg.solve(minimiser.factor, f @ latents.cross[c])
        values = P @ minimiser.normals
        groups = [values[minimiser.winners == i] for i in np.unique(minimiser.winners)]
        scatters = [((g - g.mean()) ** 2).sum() for g in groups]
        pooled = sum(scatters) / (draws - len(groups))
        for group, scatter in zip(groups, scatters, strict=True):
            within = (scatter + 4 * pooled) / (len(group) + 3) * (draws - 1) / draws
            left = variance - P @ P + within
            gain[c, m] -= 0.5 * len(group) / draws * np.log(left / variance)
    return gain


@given(st.integers(1, 20), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_all_at_once_is_one_by_one(n: int, seed: int) -> None:
    minimiser, latents = belief(n, 4, seed, 64)
    found = information_gain(minimiser, latents, BASIS, noise_at(SIZES))
    assert found == pytest.approx(by_loops(minimiser, latents, BASIS, noise_at(SIZES)), abs=1e-8)


def test_a_representer_that_wins_a_single_draw_has_the_pooled_variance() -> None:
    """Its own would be 0, as if its winning told all of y."""
    minimiser, latents = belief(2, 30, 4, 200)
    winners = np.zeros(200, dtype=np.intp)
    winners[17] = 1
    rare = replace(minimiser, winners=winners, probabilities=np.array([0.995, 0.005]))
    gain = information_gain(rare, latents, BASIS, np.full(5, 1e-3))
    assert np.isfinite(gain).all()
    # One draw in 200 shifts the mean of the others, and tells no more than that.
    assert np.abs(gain).max() < 0.05
    assert np.abs(gain).mean() < 0.005


@given(st.integers(1, 30), st.integers(0, 2**32), st.floats(1e-3, 10), st.floats(1.5, 100))
@settings(max_examples=40, deadline=None)
def test_it_is_bounded_and_falls_with_noise(n: int, seed: int, noise: float, factor: float) -> None:
    minimiser, latents = belief(n, 6, seed)
    some = np.full(len(BASIS), noise)
    gain = information_gain(minimiser, latents, BASIS, some)
    assert (gain > -0.02).all()
    assert (gain <= minimiser.entropy + 0.02).all()
    variance = np.einsum("ma,cab,mb->cm", BASIS, latents.covariance, BASIS) + noise
    assert (gain <= np.log(variance / noise) / 2 + 1e-9).all()
    noisier = information_gain(minimiser, latents, BASIS, factor * some)
    assert (noisier <= gain + 1e-3).all()


def test_noise_of_its_own_at_each_size_counts_there() -> None:
    minimiser, latents = belief(10, 6, 5)
    noise = np.full(5, 0.1)
    alike = information_gain(minimiser, latents, BASIS, noise)
    noise[1] = 1e4
    loud = information_gain(minimiser, latents, BASIS, noise)
    assert loud[:, [0, 2, 3, 4]] == pytest.approx(alike[:, [0, 2, 3, 4]])
    assert np.abs(loud[:, 1]).max() < 1e-3 < alike[:, 1].min()


@given(st.integers(1, 30), st.integers(0, 2**32))
@settings(max_examples=15, deadline=None)
def test_what_varies_with_no_representer_tells_nothing(n: int, seed: int) -> None:
    minimiser, latents = belief(n, 4, seed)
    apart = replace(latents, cross=np.zeros_like(latents.cross))
    gain = information_gain(minimiser, apart, BASIS, noise_at(SIZES))
    assert gain == pytest.approx(np.zeros((4, 5)), abs=1e-12)


def test_labels_without_information_seem_to_tell_next_to_nothing() -> None:
    minimiser, latents = belief(50, 60, 6, 1024, spread=3)
    V = minimiser.factor @ minimiser.factor.T
    normals = np.random.default_rng(3).normal(size=(50, 1024))

    def seeming(of: Minimiser) -> np.ndarray:
        rng = np.random.default_rng(0)
        relabelled = [replace(of, winners=rng.permutation(of.winners)) for _ in range(10)]
        noise = noise_at(SIZES)
        return np.array([information_gain(m, latents, BASIS, noise) for m in relabelled])

    whitened, plain = seeming(minimiser), seeming(Minimiser.of(minimiser.mean, V, normals))
    assert abs(whitened.mean()) < 1e-3
    assert whitened.max() < 0.02
    assert plain.mean() > 5 * abs(whitened.mean())
    assert plain.max() > 3 * whitened.max()


def test_all_sizes_at_once_are_each_size_alone() -> None:
    """With a single weight, the value at that size itself."""
    minimiser, latents = belief(12, 5, 7)
    noise = noise_at(SIZES)
    at_once = information_gain(minimiser, latents, BASIS, noise)
    for m, f in enumerate(BASIS):
        value = Latents(
            latents.mean @ f[:, None],
            np.einsum("a,cab,b->c", f, latents.covariance, f)[:, None, None],
            np.einsum("a,caz->cz", f, latents.cross)[:, None],
        )
        alone = information_gain(minimiser, value, np.ones((1, 1)), noise[[m]])
        assert alone[:, 0] == pytest.approx(at_once[:, m], abs=1e-10)


def test_a_single_representer_leaves_nothing_to_learn() -> None:
    minimiser, latents = belief(1, 6, 8)
    gain = information_gain(minimiser, latents, BASIS, noise_at(SIZES))
    assert gain == pytest.approx(np.zeros((6, 5)), abs=1e-12)


def evaluated_themselves(V: np.ndarray, mean: np.ndarray, noise: float) -> np.ndarray:
    """Gains of candidates that are the representers, on the full data."""
    minimiser = Minimiser.of(mean, V, whitened_normals(len(V), 512, np.random.default_rng(0)))
    latents = Latents(mean[:, None], np.diag(V)[:, None, None], V[:, None])
    return information_gain(minimiser, latents, np.ones((1, 1)), np.array([noise]))[:, 0]


@pytest.mark.parametrize("noise", [1e-6, 0.1])
def test_a_candidate_may_be_a_representer(noise: float) -> None:
    gain = evaluated_themselves(np.diag([1.0, 1.0, 1e-4]), np.array([0.0, 0.1, 3.0]), noise)
    assert gain[:2].min() > 0.1
    assert abs(gain[2]) < 0.01


def test_a_point_that_is_there_twice_does_no_harm() -> None:
    root = np.random.default_rng(0).normal(size=(4, 4))
    V = (root @ root.T)[np.ix_([0, 1, 2, 3, 1, 1], [0, 1, 2, 3, 1, 1])]
    gain = evaluated_themselves(V, np.zeros(6), 0.01)
    assert np.isfinite(gain).all()
    assert gain[[4, 5]] == pytest.approx(gain[[1, 1]], abs=1e-4)
    assert gain.max() < np.log(6)


@pytest.mark.parametrize("variance", [0.0, 1e-20])
def test_where_all_is_known_and_equal_nothing_is_learned(variance: float) -> None:
    gain = evaluated_themselves(np.full((5, 5), variance), np.full(5, 0.4), 0.01)
    assert gain == pytest.approx(np.zeros(5), abs=1e-9)


def test_covariances_that_do_not_fit_leave_the_noise_at_least() -> None:
    """As if the representers told more of an outcome than varies in it, without its noise."""
    minimiser, latents, noise = of_difference(0.0, 0.99, 512)
    latents = replace(latents, cross=2 * latents.cross)
    gain = information_gain(minimiser, latents, np.ones((1, 1)), noise)[0, 0]
    assert np.isfinite(gain)
    assert gain <= -np.log(noise[0]) / 2


def test_divided_by_cost_the_divergence_picks_what_is_useless() -> None:
    """The constant of the paper's equation 7 decides; the worked trap of two candidates."""
    entropy, n = np.log(50) - 2.0, 50

    def probabilities(p: float) -> np.ndarray:
        return np.array([p, *np.full(n - 1, (1 - p) / (n - 1))])

    p = brentq(lambda q: -xlogy(probabilities(q), probabilities(q)).sum() - entropy, 0.1, 0.999)
    minimiser = replace(belief(n, 1, 0)[0], probabilities=probabilities(p))
    gain, cost = np.array([0.001, 0.2]), np.array([0.01, 1.0])
    divergence = divergence_from_uniform(minimiser, gain)
    assert divergence / cost == pytest.approx([200.1, 2.2])
    assert gain / cost == pytest.approx([0.1, 0.2])
    assert np.argmax(divergence / cost) == 0
    assert np.argmax(gain / cost) == 1


def test_the_divergence_is_that_from_uniform_after_the_evaluation() -> None:
    minimiser, latents, noise = of_difference(0.5, 0.7, 100_000)
    gain = information_gain(minimiser, latents, np.ones((1, 1)), noise)
    p = minimiser.probabilities
    now = float((p * np.log(2 * p)).sum())
    assert divergence_from_uniform(minimiser, gain) == pytest.approx(now + gain)
    assert divergence_from_uniform(minimiser, gain)[0, 0] > 0.168


def test_bad_input_is_refused() -> None:
    minimiser, latents = belief(4, 3, 0)
    noise = noise_at(SIZES)
    with pytest.raises(ValueError, match="cross-covariances with 3 representers, not with 4"):
        information_gain(minimiser, replace(latents, cross=latents.cross[:, :, :3]), BASIS, noise)
    with pytest.raises(ValueError, match=r"basis \(5, 2\) and noise \(5,\), not \(M, 3\)"):
        information_gain(minimiser, latents, BASIS[:, :2], noise)
    with pytest.raises(ValueError, match=r"the noise is 0\.0, not positive"):
        information_gain(minimiser, latents, BASIS, noise * [1, 1, 1, 1, 0])
    with pytest.raises(ValueError, match=r"the covariance has shape \(3, 2, 2\), not \(3, 3, 3\)"):
        replace(latents, covariance=latents.covariance[:, :2, :2])
