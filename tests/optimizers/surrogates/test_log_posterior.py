import numpy as np
import pytest

from prefect_tune.optimizers.methods.fabolas.sizes import COST, FULL, LOG_LOSS, PAPER_LOSS, TASKS
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis, FidelityKernel
from prefect_tune.optimizers.surrogates.kernel import Constant, Parameter
from prefect_tune.optimizers.surrogates.log_posterior import log_posterior, log_posterior_value
from prefect_tune.optimizers.surrogates.noise import ConstantNoise, FallingNoise, Noise
from prefect_tune.optimizers.surrogates.stationary import Matern52

BASES = {"one": FULL, "two": PAPER_LOSS, "cost": COST, "three": LOG_LOSS, "tasks": TASKS}
NOISES: dict[str, Noise] = {"constant": ConstantNoise(), "falling": FallingNoise(2)}


def data(n: int = 14, t: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = rng.random((n, 3))
    inputs[::3, 2] = 1.0
    return inputs, rng.normal(size=(n, t))


def kernel_of(basis: Basis) -> FidelityKernel:
    return FidelityKernel(Matern52([0, 1]), 2, basis)


def some_theta(kernel: FidelityKernel, noise: Noise, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parameters = (*kernel.parameters, *noise.parameters)
    return np.array([np.clip(rng.normal(-1, 0.6), p.lower, p.upper) for p in parameters])


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("basis", BASES)
def test_the_gradient_agrees_with_central_differences(basis: str, noise: str) -> None:
    """Fabolas sheet, T10."""
    kernel, around = kernel_of(BASES[basis]), NOISES[noise]
    inputs, targets = data()
    theta = some_theta(kernel, around, 1)

    def value(at: np.ndarray) -> float:
        return log_posterior(kernel, at, inputs, targets, noise=around, has_constant=False)[0]

    _, gradient = log_posterior(kernel, theta, inputs, targets, noise=around, has_constant=False)
    steps = 1e-5 * np.eye(len(theta))
    expected = [(value(theta + e) - value(theta - e)) / 2e-5 for e in steps]
    assert gradient == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("has_constant", [True, False])
@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("noise", NOISES)
def test_the_value_alone_is_the_value(noise: str, t: int, *, has_constant: bool) -> None:
    kernel, around = kernel_of(LOG_LOSS), NOISES[noise]
    inputs, targets = data(t=t)
    for seed in range(3):
        theta = some_theta(kernel, around, seed)
        both, _ = log_posterior(
            kernel, theta, inputs, targets, noise=around, has_constant=has_constant
        )
        alone = log_posterior_value(
            kernel, theta, inputs, targets, noise=around, has_constant=has_constant
        )
        assert alone == pytest.approx(both, rel=1e-10)


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_there_is_no_density_outside_of_the_bounds(end: str) -> None:
    kernel, noise = kernel_of(LOG_LOSS), NOISES["falling"]
    inputs, targets = data()
    parameters = (*kernel.parameters, *noise.parameters)
    theta = np.array([p.start for p in parameters])
    sign = 1 if end == "upper" else -1
    for i, parameter in enumerate(parameters):
        on, beyond = theta.copy(), theta.copy()
        on[i] = getattr(parameter, end)
        beyond[i] = on[i] + sign * 1e-9
        for at, is_inside in ((on, True), (beyond, False)):
            value = log_posterior_value(
                kernel, at, inputs, targets, noise=noise, has_constant=False
            )
            assert np.isfinite(value) == is_inside
            assert is_inside or value == -np.inf


def test_worked_likelihood() -> None:
    """Fabolas sheet, T4; the priors are taken off."""
    kernel, noise = kernel_of(PAPER_LOSS), FallingNoise(2)
    theta = np.append(np.log([0.4, 0.8, 0.9]), [-0.3, np.log(0.5), np.log(0.01), -80.0])
    inputs, targets = np.array([[0.2, 0.5, 0.2], [0.5, 0.1, 0.7]]), np.array([[1.0], [-1.0]])
    value, _ = log_posterior(kernel, theta, inputs, targets, noise=noise, has_constant=False)
    priors = [p.prior for p in (*kernel.parameters, *noise.parameters) if p.prior]
    assert len(priors) == len(theta)
    steps = [(x - mean) / deviation for x, (mean, deviation) in zip(theta, priors, strict=True)]
    likelihood = value + 0.5 * np.square(steps).sum()
    assert likelihood == pytest.approx(-4.4267209214, abs=1e-9)


def test_parameters_without_a_prior_have_a_flat_one() -> None:
    flat = Constant(Parameter("variance", 0.0, -3.0, 3.0))
    noise = ConstantNoise(Parameter("noise", -1.0, -9.0, 9.0, (0.0, 2.0)))
    inputs, targets = data(3)
    theta = np.array([0.5, -1.0])
    K = np.exp(0.5) + np.exp(-1.0) * np.eye(3)
    z = targets[:, 0]
    expected = (
        -0.5 * z @ np.linalg.solve(K, z)
        - 0.5 * np.linalg.slogdet(K)[1]
        - 1.5 * np.log(2 * np.pi)
        - 0.5 * (1.0 / 2.0) ** 2
    )
    got = log_posterior_value(flat, theta, inputs, targets, noise=noise, has_constant=False)
    assert got == pytest.approx(expected)
