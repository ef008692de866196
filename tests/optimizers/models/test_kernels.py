"""Contract of every kernel, noise included, and worked values of each."""

from collections.abc import Callable

import numpy as np
import pytest

from prefect_tune.optimizers.methods.fabolas.subsets import (
    COST,
    FULL,
    LOG_LOSS,
    PAPER_LOSS,
    RAW_LOSS,
    TASKS,
)
from prefect_tune.optimizers.models.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.models.fidelity_kernel import Basis, FidelityKernel
from prefect_tune.optimizers.models.kernels import (
    RBF,
    Conditional,
    Constant,
    FallingNoise,
    Kernel,
    Matern52,
    Noise,
    Product,
    lengthscale_parameter,
)
from prefect_tune.optimizers.models.log_posterior import cholesky

OF_TIME = Decay()


def kernel(basis: Basis) -> FidelityKernel:
    return FidelityKernel(Matern52([0, 1]), 2, basis)


def curve_kernel() -> CurveKernel:
    """Return a kernel over three columns: a number, the time t, and a second number."""
    return CurveKernel(Matern52([0, 2]), 1, OF_TIME)


KERNELS: dict[str, Kernel] = {
    "constant": Constant(),
    "matern": Matern52([0, 1, 2]),
    "rbf": RBF([0, 2]),
    "tied": Matern52([0, 1, 2], [0, 1, 1]),
    "scaled": Product([Constant(), Matern52([0, 1, 2])]),
    "product of three": Product([Constant(), RBF([0]), Matern52([1])]),
    "conditional alone": Conditional(3, Matern52([0, 1])),
    "conditional": Product([Constant(), Conditional(3, Matern52([0, 1])), Conditional(4)]),
    "over sizes: log loss": kernel(LOG_LOSS),
    "over sizes: raw loss": kernel(RAW_LOSS),
    "over sizes: paper": kernel(PAPER_LOSS),
    "over sizes: cost": kernel(COST),
    "over sizes: tasks": kernel(TASKS),
    "over sizes: full": kernel(FULL),
    "over epochs": curve_kernel(),
    "over epochs only": CurveKernel(Product([]), 1, OF_TIME),
}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def some(kernel: Kernel, seed: int, n: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs of three numbers and two choices, and a theta."""
    rng = np.random.default_rng(seed)
    inputs = np.hstack([rng.random((n, 3)), rng.integers(0, 2, (n, 2))])
    return inputs, rng.normal(-0.5, 0.5, len(kernel.parameters))


def differences(value: Callable[[np.ndarray], np.ndarray | float], at: np.ndarray) -> np.ndarray:
    """Return central differences in the first coordinates of a point."""
    steps = 1e-5 * np.eye(len(at))
    return np.array([(value(at + step) - value(at - step)) / 2e-5 for step in steps])


@every_kernel
def test_gradients_in_the_parameters_agree_with_differences(name: str) -> None:
    kernel = KERNELS[name]
    inputs, theta = some(kernel, 0)
    weights = np.random.default_rng(0).normal(size=(7, 7))
    weights = weights + weights.T
    K, pull = kernel.pullback(theta, inputs)
    assert pytest.approx(kernel.covariance(theta, inputs, inputs), abs=1e-12) == K
    assert np.diag(K) == pytest.approx(kernel.variance(theta, inputs))
    assert np.linalg.eigvalsh(K).min() > -1e-9
    expected = differences(lambda t: (weights * kernel.covariance(t, inputs, inputs)).sum(), theta)
    assert pull(weights) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(
    "name", ["constant", "matern", "rbf", "tied", "scaled", "product of three"]
)
def test_gradients_in_the_inputs_agree_with_differences(name: str) -> None:
    kernel = KERNELS[name]
    inputs, theta = some(kernel, 0)
    a, b = inputs[:2], inputs[2:]
    weights = np.random.default_rng(0).normal(size=(2, 5))
    K, pull = kernel.input_pullback(theta, a, b)
    assert pytest.approx(kernel.covariance(theta, a, b), abs=1e-12) == K
    for row in range(2):

        def value(x: np.ndarray, row: int = row) -> float:
            moved = np.append(x, a[row, 3:])[None]
            return float((weights[row] * kernel.covariance(theta, moved, b)).sum())

        expected = differences(value, a[row, :3])
        assert pull(weights)[row, :3] == pytest.approx(expected, rel=1e-5, abs=1e-6)


def drawn_theta(kernel: Kernel | Decay, seed: int) -> np.ndarray:
    """Draw from the priors; some values within the bounds are too steep for differences."""
    rng = np.random.default_rng(seed)
    return np.array([p.draw(rng) for p in kernel.parameters])


def test_kernels_match_worked_values() -> None:
    # Fabolas and ESMBO: r^2 = 0.8125; r = 1 and r = 0.5.
    a, b = np.array([[0.2, 0.5]]), np.array([[0.5, 0.1]])
    theta = np.log([0.4, 0.8])
    assert Matern52([0, 1]).covariance(theta, a, b)[0, 0] == pytest.approx(0.5822455796, abs=1e-10)
    line = Matern52([0]).covariance(np.zeros(1), np.zeros((1, 1)), np.array([[1.0], [0.5]]))
    assert line[0] == pytest.approx([0.523994, 0.828649], abs=1e-6)
    gauss = RBF([0]).covariance(np.zeros(1), np.zeros((1, 1)), np.array([[2.0]]))
    assert gauss[0, 0] == pytest.approx(np.exp(-2))


def test_prior_of_lengthscales_grows_with_the_root_of_the_dimension() -> None:
    """The distance of two random points in d dimensions grows with the root of d."""
    medians = [np.exp(lengthscale_parameter("l", d).prior[0]) for d in (1, 4, 16, 64)]
    assert medians == pytest.approx([0.5, 0.5, 1.0, 2.0])


def test_fidelity_kernel_matches_worked_values() -> None:
    theta = np.array([np.log(0.4), np.log(0.8), np.log(0.9), -0.3, np.log(0.5)])
    of_paper = kernel(PAPER_LOSS)
    assert of_paper.weights(theta[2:]) == pytest.approx(np.array([[0.81, -0.27], [-0.27, 0.34]]))
    a, b = np.array([[0.2, 0.5, 0.2]]), np.array([[0.5, 0.1, 0.7]])
    K = of_paper.covariance(theta, a, b)
    assert K[0, 0] == pytest.approx(0.3682610132, abs=1e-10)
    there = np.array([[0.2, 0.5, 0.7]])
    assert of_paper.covariance(theta, a, there)[0, 0] == pytest.approx(0.632484, abs=1e-10)
    full = np.array([[0.2, 0.5, 1.0]])
    deviations = np.sqrt(of_paper.variance(theta, np.vstack([a, full])))
    correlation = of_paper.covariance(theta, a, full)[0, 0] / deviations.prod()
    assert correlation == pytest.approx(0.9112459668, abs=1e-10)


def test_decay_kernel_matches_worked_values() -> None:
    of_time, theta = Decay(), np.log([0.5, 1.0, 1.5, 0.3])
    t, u = np.array([0.2]), np.array([0.5])
    assert of_time.covariance(theta, t, u)[0, 0] == pytest.approx(0.6643167672515498, rel=1e-14)
    assert of_time.slope(theta, t, u)[0, 0] == pytest.approx(-0.24647515087732472, rel=1e-14)
    assert of_time.slope_slope(theta, t, u)[0, 0] == pytest.approx(0.6161878771933119, rel=1e-14)
    assert of_time.variance(theta, t)[0] == pytest.approx(0.7805658588748473, rel=1e-14)


def test_slope_covariances_agree_with_differences_in_time() -> None:
    rng, of_curves = np.random.default_rng(0), curve_kernel()
    a, b = rng.random((4, 3)), rng.random((5, 3))
    theta, step = drawn_theta(of_curves, 3), np.array([0.0, 1e-5, 0.0])

    def difference(f: np.ndarray, g: np.ndarray) -> np.ndarray:
        return (f - g) / 2e-5

    covariance = of_curves.covariance
    slope = difference(covariance(theta, a, b + step), covariance(theta, a, b - step))
    assert of_curves.slope_covariance(theta, a, b) == pytest.approx(slope, abs=1e-8)
    second = difference(
        of_curves.slope_covariance(theta, a + step, b),
        of_curves.slope_covariance(theta, a - step, b),
    )
    assert of_curves.slope_slope_covariance(theta, a, b) == pytest.approx(second, abs=1e-7)
    between = Matern52([0, 2]).covariance(theta[:2], a, b)
    assert of_curves.between(theta, a, b) == pytest.approx(between, rel=1e-12)


THREE_ROWS = np.array([[0.3, 0.0], [0.9, 0.5], [0.3, 1.0]])
THETA = np.log([0.01, 0.4])


@pytest.mark.parametrize(
    ("noise", "theta", "variance"),
    [
        (Noise(), THETA[:1], [0.01] * 3),
        (FallingNoise(1), THETA, [0.41, 0.11, 0.01]),  # least on the full data
        (FallingNoise(0), THETA, [0.206, 0.014, 0.206]),  # of the column that it is told
    ],
)
def test_noise_kernel_depends_on_the_row(
    noise: Noise, theta: np.ndarray, variance: list[float]
) -> None:
    assert noise.variance(theta, THREE_ROWS) == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**40])
def test_unit_of_a_singular_covariance_does_not_change_the_jitter(unit: float) -> None:
    singular = np.ones((3, 3))
    assert (cholesky(unit * singular, 0.0) == np.sqrt(unit) * cholesky(singular, 0.0)).all()
