import numpy as np
import pytest
from scipy.special import ndtr

from prefect_tune.optimizers.acquisitions.lookahead import two_step_improvement


def improvement(mean: np.ndarray, deviation: np.ndarray, best: np.ndarray | float) -> np.ndarray:
    u = (mean - best) / deviation
    density = np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi)
    result: np.ndarray = deviation * (u * ndtr(u) + density)
    return result


def two_steps(
    mean: np.ndarray, covariance: np.ndarray, best: float, allowed: np.ndarray | None = None
) -> np.ndarray:
    every = np.ones(len(mean), dtype=np.bool_)
    return two_step_improvement(
        mean,
        np.diag(covariance),
        lambda j: covariance[j],
        best,
        every if allowed is None else allowed,
    )


def by_brute_force(mean: np.ndarray, covariance: np.ndarray, best: float, j: int) -> float:
    """The gain of j, and of the best after each of many outcomes of it."""
    z = np.linspace(-8, 8, 4001)
    weights = np.exp(-0.5 * z * z)
    gain = covariance[j] / np.sqrt(covariance[j, j])
    left = np.sqrt(np.maximum(np.diag(covariance) - gain**2, 1e-20))
    outcome = mean[j] + z * gain[j]
    others = [k for k in range(len(mean)) if k != j]
    after = np.array(
        [improvement(mean[k] + z * gain[k], left[k], np.maximum(best, outcome)) for k in others]
    ).max(axis=0)
    total = np.maximum(outcome - best, 0) + after
    return float(weights @ total / weights.sum())


def candidates(seed: int, m: int) -> tuple[np.ndarray, np.ndarray, float]:
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(m, 2))
    covariance = factors @ factors.T + np.diag(rng.uniform(0.2, 1.0, m))
    return rng.normal(size=m), covariance, float(rng.normal(0.5))


@pytest.mark.parametrize("seed", range(6))
def test_two_steps_are_those_of_brute_force(seed: int) -> None:
    mean, covariance, best = candidates(seed, 5)
    found = two_steps(mean, covariance, best)
    exact = [by_brute_force(mean, covariance, best, j) for j in range(5)]
    # Of 40 such worlds the worst is off by half a percent.
    assert found == pytest.approx(exact, rel=0.01)


def test_a_single_candidate_has_its_own_improvement() -> None:
    found = two_steps(np.array([0.3]), np.array([[0.25]]), 0.4)
    assert found == pytest.approx(improvement(np.array([0.3]), np.array([0.5]), 0.4))


def test_of_two_that_are_independent_it_is_the_joint_improvement() -> None:
    """Sheet, W6: (1 + 1 / sqrt 2) / sqrt(2 pi); the second may be the first one's equal."""
    found = two_steps(np.zeros(2), np.eye(2), 0.0)
    assert found == pytest.approx([(1 + 2**-0.5) / np.sqrt(2 * np.pi)] * 2, rel=0.005)


def test_a_second_step_adds_something_and_never_takes() -> None:
    mean, covariance, best = candidates(3, 8)
    one_step = improvement(mean, np.sqrt(np.diag(covariance)), best)
    assert np.all(two_steps(mean, covariance, best) > one_step)


def test_what_is_not_allowed_is_neither_first_nor_second() -> None:
    mean, covariance, best = candidates(1, 4)
    allowed = np.array([True, False, True, True])
    found = two_steps(mean, covariance, best, allowed)
    kept = np.flatnonzero(allowed)
    assert found[1] == -np.inf
    among = two_steps(mean[kept], covariance[np.ix_(kept, kept)], best)
    assert found[kept] == pytest.approx(among)
    # It would have been the best second.
    assert np.all(
        two_steps(mean + np.array([0, 9, 0, 0]), covariance, best, allowed)[kept] == found[kept]
    )


def test_only_the_most_promising_by_one_step_are_looked_at() -> None:
    mean = np.linspace(0, 1, 40)
    found = two_steps(mean, np.eye(40), 0.5)
    assert np.all(np.isfinite(found[8:]))
    assert np.all(found[:8] == -np.inf)
    few = np.zeros(40, dtype=np.bool_)
    few[:3] = True
    assert np.flatnonzero(np.isfinite(two_steps(mean, np.eye(40), 0.5, few))).tolist() == [0, 1, 2]
