import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from prefect_tune.optimizers.surrogates.truncation import Sites, propagate, truncation_ratio


def truncated(
    mean: np.ndarray, covariance: np.ndarray, sites: Sites
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance with the sites, by what they are: precisions add."""
    inverse = np.linalg.inv(covariance)
    S = np.linalg.inv(inverse + np.diag(sites.precision))
    return S @ (inverse @ mean + sites.shift), S


def drawn(s: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(s, s + 1))
    return rng.normal(size=s), root @ root.T / (s + 1) + 0.05 * np.eye(s)


def test_worked_single_truths() -> None:
    """Sheet, W3: exact by Mills' ratio, as one site always is."""
    mean, covariance = np.array([-1.0]), np.array([[4.0]])
    sites = propagate(mean, covariance, noise=0.0)
    assert sites.precision[0] == pytest.approx(0.681167, abs=1e-6)
    assert sites.shift[0] == pytest.approx(1.443900, abs=1e-6)
    assert sites.log_probability == pytest.approx(-1.1759117615936188, rel=1e-12)
    moments = truncated(mean, covariance, sites)
    assert moments[0][0] == pytest.approx(1.2821555, abs=1e-6)
    assert moments[1][0, 0] == pytest.approx(1.0739216, abs=1e-6)
    mean, covariance = np.array([-8.0]), np.array([[1.0]])
    sites = propagate(mean, covariance, noise=0.0)
    moments = truncated(mean, covariance, sites)
    assert moments[0][0] == pytest.approx(0.1213681, abs=1e-6)
    assert moments[1][0, 0] == pytest.approx(0.0143249, abs=1e-6)
    assert sites.log_probability == pytest.approx(-35.01343716, abs=1e-6)


def test_worked_pair() -> None:
    """Sheet, W4."""
    covariance = np.array([[1.0, 0.5], [0.5, 1.0]])
    sites = propagate(np.zeros(2), covariance, noise=0.0)
    assert sites.precision == pytest.approx([1.35055] * 2, rel=1e-4)
    assert sites.shift == pytest.approx([1.80926] * 2, rel=1e-4)
    assert np.exp(sites.log_probability) == pytest.approx(0.3327286, rel=1e-4)
    mean, S = truncated(np.zeros(2), covariance, sites)
    assert mean == pytest.approx([0.896908] * 2, rel=1e-4)
    assert np.diag(S) == pytest.approx([0.397095] * 2, rel=1e-4)
    assert S[0, 1] == pytest.approx(0.098637, rel=1e-4)


def test_worked_ratios_far_down() -> None:
    """Sheet, W15; the second cancels where it is computed as a difference."""
    worked = {
        0.0: (0.7978846, 0.3633802),
        -5.0: (5.186504, 0.0326964),
        -12.5: (12.5790072, 0.0061673),
        -40.0: (40.0249688, 0.0006227),
    }
    for z, (ratio, left) in worked.items():
        assert truncation_ratio(z) == pytest.approx((ratio, left), abs=2e-6)


def test_ratios_are_continuous_where_the_series_begins() -> None:
    # The difference itself still has nine digits there; the series is short of u^-7.
    above, below = truncation_ratio(-12.0 + 1e-9), truncation_ratio(-12.0)
    assert above == pytest.approx(below, rel=3e-4)
    assert below[1] > truncation_ratio(-1e5)[1] > 0


@pytest.mark.parametrize("s", [1, 2, 3])
def test_moments_agree_with_rejection_sampling(s: int) -> None:
    """Within four standard errors and EP's own error, 0.1 of a deviation (sheet, 4.3)."""
    mean, covariance = drawn(s, seed=s)
    sites = propagate(mean, covariance, noise=0.0)
    sample = np.random.default_rng(0).multivariate_normal(mean, covariance, 1_000_000)
    kept = sample[(sample >= 0).all(axis=1)]
    of_ep, S = truncated(mean, covariance, sites)
    deviations = kept.std(axis=0)
    slack = (0.0 if s == 1 else 0.1) + 4 / np.sqrt(len(kept))
    assert np.abs(of_ep - kept.mean(axis=0)).max() < slack * deviations.max()
    assert np.sqrt(np.diag(S)) == pytest.approx(deviations, rel=0.01 if s == 1 else 0.1)
    probability = len(kept) / len(sample)
    error = 4 * np.sqrt((1 - probability) / len(kept)) + (0.0 if s == 1 else 0.03)
    assert sites.log_probability == pytest.approx(np.log(probability), abs=error)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), s=st.integers(2, 12))
def test_the_order_of_sites_hardly_matters(seed: int, s: int) -> None:
    mean, covariance = drawn(s, seed)
    order = np.random.default_rng(seed).permutation(s)
    straight = truncated(mean, covariance, propagate(mean, covariance))
    mixed = propagate(mean[order], covariance[np.ix_(order, order)])
    other, _ = truncated(mean[order], covariance[np.ix_(order, order)], mixed)
    deviations = np.sqrt(np.diag(straight[1]))
    assert np.abs(straight[0][order] - other).max() < 1e-3 * deviations.max()


def test_truths_that_hold_anyway_say_nothing() -> None:
    """From 8 deviations on exactly nothing, whatever is left of the ratio."""
    covariance = drawn(4, seed=1)[1]
    sites = propagate(8.5 * np.sqrt(np.diag(covariance)), covariance)
    assert not sites.precision.any()
    assert not sites.shift.any()
    assert sites.log_probability == pytest.approx(0.0, abs=1e-12)


def test_a_truth_that_says_nothing_changes_no_other() -> None:
    mean, covariance = drawn(3, seed=2)
    alone = propagate(mean[:2], covariance[:2, :2], noise=1e-6)
    mean[2] = 60.0
    together = propagate(mean, covariance, noise=1e-6)
    assert together.precision[:2] == pytest.approx(alone.precision, rel=1e-6)
    assert together.precision[2] == 0
    assert together.log_probability == pytest.approx(alone.log_probability, rel=1e-9)


def test_what_is_known_already_is_left_alone() -> None:
    mean, covariance = np.array([-1.0, 0.5, 0.0]), np.zeros((3, 3))
    covariance[0, 0] = 4.0
    covariance[1, 1] = 1e-15
    sites = propagate(mean, covariance, noise=0.0)
    assert sites.precision == pytest.approx([0.681167, 0.0, 0.0], abs=1e-6)
    assert np.isfinite(sites.log_probability)


def test_nearly_singular_covariances_give_finite_sites() -> None:
    times = np.linspace(0, 1, 30)
    K = np.exp(-0.5 * (np.subtract.outer(times, times) / 0.4) ** 2)
    sites = propagate(np.sin(8 * times) - 1, K)
    assert np.isfinite(sites.precision).all()
    assert (sites.precision >= 0).all()
    assert np.isfinite(sites.shift).all()
    L = sites.factor(K)
    moved = np.sin(8 * times) - 1 + K @ sites.pull(np.sin(8 * times) - 1, K, L)
    assert moved.min() > -0.01


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_a_start_from_the_sites_of_a_similar_vector_ends_at_the_same(seed: int) -> None:
    mean, covariance = drawn(5, seed)
    similar = propagate(mean + 0.1, 1.1 * covariance)
    cold, warm = propagate(mean, covariance), propagate(mean, covariance, start=similar)
    (cold_mean, S), (warm_mean, _) = (truncated(mean, covariance, x) for x in (cold, warm))
    assert np.abs(cold_mean - warm_mean).max() < 1e-3 * np.sqrt(np.diag(S)).max()


def test_a_start_that_fits_badly_is_dropped() -> None:
    mean, covariance = drawn(3, seed=4)
    broken = Sites(np.full(3, 1.0), np.array([np.inf, 0.0, 0.0]))
    found, cold = propagate(mean, covariance, start=broken), propagate(mean, covariance)
    assert found.precision == pytest.approx(cold.precision)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), s=st.integers(1, 8))
def test_the_pull_on_means_is_that_of_the_truncated_vector(seed: int, s: int) -> None:
    mean, covariance = drawn(s, seed)
    sites = propagate(mean, covariance)
    pull = sites.pull(mean, covariance, sites.factor(covariance))
    assert mean + covariance @ pull == pytest.approx(truncated(mean, covariance, sites)[0])


def test_a_truth_seen_with_noise_is_milder() -> None:
    """Of x ~ N(-1, 2) with x + e >= 0, e ~ N(0, 1): x moves by 2 r(z) / sqrt 3, z = -1 / sqrt 3."""
    mean, covariance = np.array([-1.0]), np.array([[2.0]])
    sites = propagate(mean, covariance, noise=1.0)
    z = -1 / np.sqrt(3)
    ratio = norm.pdf(z) / norm.cdf(z)
    moved, S = truncated(mean, covariance, sites)
    assert moved[0] == pytest.approx(-1 + 2 * ratio / np.sqrt(3), rel=1e-9)
    assert S[0, 0] == pytest.approx(2 - 4 * ratio * (z + ratio) / 3, rel=1e-9)
    assert sites.log_probability == pytest.approx(norm.logcdf(z), rel=1e-9)


def test_no_truths_are_certain() -> None:
    assert propagate(np.zeros(0), np.zeros((0, 0))).log_probability == 0


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"\(s, s\) and s sites; got \(2,\), \(3, 3\) and 2"):
        propagate(np.zeros(2), np.eye(3))
    with pytest.raises(ValueError, match="finite mean and covariance"):
        propagate(np.array([np.nan]), np.eye(1))
    with pytest.raises(ValueError, match=r"shape \(s,\); got \(2,\) and \(3,\)"):
        Sites(np.zeros(2), np.zeros(3))
