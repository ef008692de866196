from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from prefect_tune.optimizers.surrogates.kernel import Constant, Kernel, Parameter
from prefect_tune.optimizers.surrogates.stationary import RBF, Conditional, Matern52

KERNELS: dict[str, Callable[[], Kernel]] = {
    "matern": lambda: Matern52([0, 1, 2]),
    "rbf": lambda: RBF([0, 2]),
    "tied": lambda: Matern52([0, 1, 2], [0, 1, 1]),
    "scaled": lambda: Constant() * Matern52([0, 1, 2]),
    "sum": lambda: Constant() * RBF([0]) + Matern52([1, 2]),
    "product of three": lambda: Constant() * (RBF([0]) * Matern52([1])),
    "conditional": lambda: Constant() * (Conditional(3, Matern52([0, 1])) * Conditional(4)),
}


def some(kernel: Kernel, seed: int, n: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of three numbers and two choices, and a theta."""
    rng = np.random.default_rng(seed)
    inputs = np.hstack([rng.random((n, 3)), rng.integers(0, 2, (n, 2))])
    return inputs, rng.normal(-0.5, 0.5, len(kernel.parameters))


def test_worked_values() -> None:
    # Fabolas and ESMBO: r^2 = 0.8125; r = 1 and r = 0.5.
    a, b = np.array([[0.2, 0.5]]), np.array([[0.5, 0.1]])
    theta = np.log([0.4, 0.8])
    assert Matern52([0, 1]).covariance(theta, a, b)[0, 0] == pytest.approx(0.5822455796, abs=1e-10)
    line = Matern52([0]).covariance(np.zeros(1), np.zeros((1, 1)), np.array([[1.0], [0.5]]))
    assert line[0] == pytest.approx([0.523994, 0.828649], abs=1e-6)
    gauss = RBF([0]).covariance(np.zeros(1), np.zeros((1, 1)), np.array([[2.0]]))
    assert gauss[0, 0] == pytest.approx(np.exp(-2))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_by_parameter_agree_with_differences(name: str, seed: int) -> None:
    kernel = KERNELS[name]()
    inputs, theta = some(kernel, seed)
    weights = np.random.default_rng(seed).normal(size=(7, 7))
    weights = weights + weights.T
    K, pull = kernel.pullback(theta, inputs)
    assert pytest.approx(kernel.covariance(theta, inputs, inputs), abs=1e-12) == K
    expected = approx_fprime(
        theta, lambda t: float((weights * kernel.covariance(t, inputs, inputs)).sum()), 1e-7
    )
    assert pull(weights) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("seed", range(3))
def test_gradients_by_input_agree_with_differences(name: str, seed: int) -> None:
    kernel = KERNELS[name]()
    inputs, theta = some(kernel, seed)
    a, b = inputs[:2], inputs[2:]
    weights = np.random.default_rng(seed).normal(size=(2, 5))
    K, pull = kernel.input_pullback(theta, a, b)
    assert pytest.approx(kernel.covariance(theta, a, b), abs=1e-12) == K
    got = pull(weights)[:, :3]
    for row in range(2):

        def total(x: np.ndarray, row: int = row) -> float:
            moved = np.append(x, a[row, 3:])[None]
            return float(weights[row] @ kernel.covariance(theta, moved, b)[0])

        expected = approx_fprime(a[row, :3], total, 1e-7)
        assert got[row] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", KERNELS)
@given(seed=st.integers(0, 10_000))
def test_covariances_are_symmetric_positive_and_have_the_variance_on_the_diagonal(
    name: str, seed: int
) -> None:
    kernel = KERNELS[name]()
    inputs, theta = some(kernel, seed, 9)
    K = kernel.covariance(theta, inputs, inputs)
    assert pytest.approx(K.T, abs=1e-12) == K
    assert np.linalg.eigvalsh(K).min() > -1e-9
    assert np.diag(K) == pytest.approx(kernel.variance(theta, inputs))


def test_different_choices_share_only_rho_and_what_is_within_does_not_count() -> None:
    kernel = Conditional(1, Matern52([0]))
    theta = np.array([0.0, np.log(0.5)])
    rows = np.array([[0.1, 0.0], [0.9, 1.0], [0.1, 1.0]])
    K = kernel.covariance(theta, rows, rows)
    assert K[0, 1] == K[0, 2] == pytest.approx(0.5)
    assert K[1, 2] == pytest.approx(0.5 + 0.5 * float(Matern52([0]).covariance(
        theta[1:], rows[1:2], rows[2:])[0, 0]))  # fmt: skip


def test_a_parameter_outside_its_bounds_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="height starts at 3"):
        Parameter("height", 3.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="prior of height"):
        Parameter("height", 0.5, 0.0, 1.0, (0.0, 0.0))


def test_groups_that_do_not_fit_the_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="3 columns need as many groups"):
        Matern52([0, 1, 2], [0, 1])
