import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers.acquisitions.expected_improvement import (
    log_expected_improvement,
    log_standard_improvement,
)


def exact(u: float) -> float:
    with mpmath.workdps(80):
        value = mpmath.npdf(u) + mpmath.mpf(u) * mpmath.ncdf(u)
        return float(mpmath.log(value))


@pytest.mark.parametrize(("u", "value"), [(-5, -16.744301), (-20, -206.917839), (-39, -768.748030)])
def test_worked_values(u: float, value: float) -> None:
    assert log_standard_improvement(u) == pytest.approx(value, abs=5e-7)


@given(st.floats(-1000, 10))
def test_it_agrees_with_eighty_digits(u: float) -> None:
    assert float(log_standard_improvement(u)) == pytest.approx(exact(u), abs=1e-7, rel=1e-12)


def test_it_is_continuous_and_rising_over_all_branches() -> None:
    for border in (-1.0, -1e4):
        near = log_standard_improvement(np.nextafter(border, [-np.inf, np.inf]))
        assert near[0] == pytest.approx(near[1], abs=1e-6)
    u = np.concatenate([-np.logspace(9, -3, 500), np.linspace(0, 40, 100)])
    assert (np.diff(log_standard_improvement(u)) > 0).all()


def test_it_equals_the_plain_form_where_that_works() -> None:
    u = np.linspace(-5, 8, 200)
    plain = np.array([float(mpmath.npdf(x) + x * mpmath.ncdf(x)) for x in u])
    assert np.exp(log_standard_improvement(u)) == pytest.approx(plain, rel=1e-9)


@given(st.floats(0.01, 100), st.floats(0, 50))
def test_loss_and_xi_in_another_unit_give_the_same_order(scale: float, xi: float) -> None:
    mean, deviation = np.array([30.0, 21.0, 25.0]), np.array([4.0, 1.0, 9.0])
    one = log_expected_improvement(mean, deviation, 20.0, xi)
    other = log_expected_improvement(mean * scale, deviation * scale, 20.0 * scale, xi * scale)
    assert other - np.log(scale) == pytest.approx(one, rel=1e-9)


def test_improvement_by_less_than_xi_does_not_count() -> None:
    mean, deviation = np.array([18.0, 25.0]), np.array([1.0, 4.0])
    with_xi = log_expected_improvement(mean, deviation, 20.0, 3.0)
    assert with_xi == pytest.approx(log_expected_improvement(mean, deviation, 17.0))
    assert (with_xi < log_expected_improvement(mean, deviation, 20.0)).all()
