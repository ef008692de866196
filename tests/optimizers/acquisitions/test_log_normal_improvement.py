import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from prefect_tune.optimizers.acquisitions.expected_improvement import log_normal_improvement


def exact(mean: float, deviation: float, best: float) -> float:
    """Hutter et al. 2009, equation 2, in four hundred digits."""
    with mpmath.workdps(400):
        m, s, f = map(mpmath.mpf, (mean, deviation, best))
        v = (f - m) / s
        kept = mpmath.exp(m + s * s / 2) * mpmath.ncdf(v - s)
        return float(mpmath.log(mpmath.exp(f) * mpmath.ncdf(v) - kept))


@pytest.mark.parametrize(("mean", "deviation", "best"), [(1.0, 0.5, 0.8), (0.2, 1.5, -1.0)])
def test_it_is_the_integral(mean: float, deviation: float, best: float) -> None:
    integral, _ = quad(
        lambda y: (np.exp(best) - np.exp(y)) * norm.pdf(y, mean, deviation),
        mean - 12 * deviation,
        best,
    )
    found = log_normal_improvement([mean], [deviation], best)
    assert np.exp(found[0]) == pytest.approx(integral, rel=1e-7)


@given(st.floats(-30, 30), st.floats(1e-5, 10), st.floats(-5, 5))
def test_it_agrees_with_many_digits(v: float, deviation: float, best: float) -> None:
    mean = best - v * deviation
    v = (best - mean) / deviation
    found = log_normal_improvement([best - v * deviation], [deviation], best)
    # The digits of the mean that were lost count v times.
    assert found[0] == pytest.approx(
        exact(best - v * deviation, deviation, best), abs=1e-6, rel=1e-9
    )


def test_far_from_the_best_it_still_ranks() -> None:
    means = np.linspace(0.1, 30, 50)
    found = log_normal_improvement(means, np.full(50, 1e-3), 0.0)
    assert (np.diff(found) < 0).all()
    assert np.isfinite(found).all()


def test_of_small_deviations_it_is_the_improvement_of_the_loss_not_of_its_logarithm() -> None:
    """A gain of a tenth of the loss is worth more where the loss is larger."""
    found = log_normal_improvement([0.9, 2.9], [1e-4, 1e-4], 1.0), np.log(np.e - np.exp(0.9))
    assert found[0][0] == pytest.approx(found[1])
    assert found[0][1] < -100
