import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefect_tune.optimizers.acquisitions.joint_improvement import JointImprovement, sobol_normals

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


def test_worked_horizon() -> None:
    """Sheet, W12: what is correlated with the first adds less than what is worse by itself."""
    deviations = np.array([0.02, 0.03, 0.04])
    correlation = np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0, 1]])
    covariance = correlation * np.outer(deviations, deviations)
    improvement = joint([0.90, 0.89, 0.88], covariance, 0.89)
    assert improvement.gains() == pytest.approx([0.0139559, 0.0119683, 0.0114538], abs=1e-7)
    improvement.choose(0)
    assert improvement.gains()[1:] == pytest.approx([0.0030331194, 0.0075990992], rel=2e-3)


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


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_candidate_adds_the_less_the_more_are_chosen(seed: int) -> None:
    mean, covariance, best = candidates(seed)
    improvement = joint(mean, covariance, best)
    chosen, before = list[int](), improvement.gains()
    for _ in range(4):
        of_others = np.where(np.isin(np.arange(len(mean)), chosen), -np.inf, before)
        chosen.append(int(of_others.argmax()))
        improvement.choose(chosen[-1])
        after = improvement.gains()
        left = np.setdiff1d(np.arange(len(mean)), chosen)
        # A few points at random would do too; the quadrature is off by less than this.
        assert np.all(after[left] <= before[left] + 5e-3 * np.sqrt(np.diag(covariance)[left]))
        before = after


def test_what_is_chosen_adds_next_to_nothing_again() -> None:
    mean, covariance, best = candidates(0)
    improvement = joint(mean, covariance, best)
    first = improvement.gains()[2]
    improvement.choose(2)
    assert improvement.gains()[2] < 1e-3 * first


def test_an_independent_candidate_can_only_gain_on_what_was_chosen() -> None:
    covariance = np.diag([1e-12, 1.0])
    improvement = joint([1.0, 0.0], covariance, -5.0)
    improvement.choose(0)  # certain to be 1, so that this is the score to beat
    assert improvement.gains()[1] == pytest.approx(joint([1.0, 0.0], covariance, 1.0).gains()[1])


def test_certain_scores_are_no_division_by_zero() -> None:
    improvement = joint([0.5, 0.2], np.zeros((2, 2)), 0.3)
    assert improvement.gains() == pytest.approx([0.2, 0.0], abs=1e-5)
    improvement.choose(0)
    assert np.all(np.isfinite(improvement.gains()))


def test_normals_are_standard_and_the_same_for_a_seed() -> None:
    assert MANY.shape == (8192, 8)
    assert MANY.mean(axis=0) == pytest.approx(np.zeros(8), abs=1e-3)
    assert np.cov(MANY.T) == pytest.approx(np.eye(8), abs=5e-3)
    assert np.all(np.isfinite(MANY))
    assert np.array_equal(MANY, sobol_normals(8192, 8, np.random.default_rng(0)))
    assert not np.array_equal(MANY, sobol_normals(8192, 8, np.random.default_rng(1)))
