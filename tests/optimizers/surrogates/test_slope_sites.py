import numpy as np
import pytest

from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel, Decay, SquaredExponential
from prefect_tune.optimizers.surrogates.slope_sites import at_times, site_times


def of_lengthscale(lengthscale: float) -> np.ndarray:
    kernel = CurveKernel(None, 0, SquaredExponential())
    of_noise = 1e-3  # not read
    return site_times(kernel, np.log([1.0, 1.0, lengthscale, of_noise]), 50)


def test_what_decays_has_two_sites_or_more_by_the_logarithm() -> None:
    kernel, theta = CurveKernel(None, 0, Decay()), np.zeros(4)
    assert site_times(kernel, theta, 50) == pytest.approx([0.02, 1.0])
    assert site_times(kernel, theta, 100, 3) == pytest.approx([0.01, 0.1, 1.0])


def test_a_squared_exponential_has_a_site_every_seven_tenths_of_its_lengthscale() -> None:
    assert of_lengthscale(0.3) == pytest.approx(np.linspace(0.02, 1.0, 6))
    assert np.diff(of_lengthscale(0.15)).max() <= 0.7 * 0.15
    assert len(of_lengthscale(2.0)) == 4
    assert len(of_lengthscale(0.01)) == 16


def test_each_row_stands_at_each_time() -> None:
    rows = at_times(np.array([[1.0, 9.0, 2.0], [3.0, 9.0, 4.0]]), 1, np.array([0.1, 1.0]))
    assert rows.tolist() == [[1, 0.1, 2], [1, 1.0, 2], [3, 0.1, 4], [3, 1.0, 4]]


def test_too_few_epochs_or_sites_are_refused() -> None:
    kernel = CurveKernel(None, 0, Decay())
    with pytest.raises(ValueError, match="got None of 1"):
        site_times(kernel, np.zeros(4), 1)
    with pytest.raises(ValueError, match="got 1 of 50"):
        site_times(kernel, np.zeros(4), 50, 1)
