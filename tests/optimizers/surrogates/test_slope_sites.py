import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefect_tune.optimizers.surrogates.monotone import at_times, needed_sites, site_times
from prefect_tune.optimizers.surrogates.truncation import propagate


def test_what_decays_has_two_sites_or_more_by_the_logarithm() -> None:
    assert site_times(50) == pytest.approx([0.02, 1.0])
    assert site_times(100, 3) == pytest.approx([0.01, 0.1, 1.0])


def test_each_row_stands_at_each_time() -> None:
    rows = at_times(np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0]]), 1, np.array([0.1, 1.0]))
    assert rows.tolist() == [[1, 0.1, 2], [1, 1.0, 2], [3, 0.1, 4], [3, 1.0, 4]]


def test_too_few_epochs_or_sites_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 of 1"):
        site_times(1)
    with pytest.raises(ValueError, match="got 1 of 50"):
        site_times(50, 1)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), s=st.integers(1, 10))
def test_with_the_needed_sites_no_mean_is_negative(seed: int, s: int) -> None:
    rng = np.random.default_rng(seed)
    mean, root = rng.normal(size=s), rng.normal(size=(s, s + 1))
    covariance = root @ root.T / (s + 1) + 0.05 * np.eye(s)
    chosen, sites = needed_sites(mean, covariance)
    inner = covariance[np.ix_(chosen, chosen)]
    pull = sites.pull(mean[chosen], inner, sites.factor(inner)) if len(chosen) else np.zeros(0)
    assert (mean + covariance[:, chosen] @ pull >= -1e-9).all()
    assert len(set(chosen)) == len(chosen) <= s
    assert sites.precision == pytest.approx(propagate(mean[chosen], inner).precision, rel=0.02)


def test_the_least_likely_comes_first_and_may_make_others_needless() -> None:
    covariance = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    chosen, _ = needed_sites(np.array([-0.3, -1.0, -0.5]), covariance)
    assert chosen.tolist() == [1, 2]
    scaled = np.diag([1.0, 100.0])
    chosen, _ = needed_sites(np.array([-0.5, -1.0]), scaled)
    assert chosen.tolist() == [0, 1]
    chosen, sites = needed_sites(np.array([0.1, 2.0]), np.eye(2))
    assert not len(chosen)
    assert not len(sites.precision)


def test_no_more_sites_are_taken_than_allowed() -> None:
    chosen, sites = needed_sites(-np.arange(1.0, 6.0), np.eye(5), most=2)
    assert chosen.tolist() == [4, 3]
    assert len(sites.precision) == 2


def test_a_slope_that_is_known_gets_no_site() -> None:
    chosen, _ = needed_sites(np.array([-1.0, -1.0]), np.diag([0.0, 1.0]))
    assert chosen.tolist() == [1]
