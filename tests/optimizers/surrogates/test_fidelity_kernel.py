import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.optimizers.methods.fabolas.belief import pipeline_inputs
from prefect_tune.optimizers.methods.fabolas.sizes import (
    COST,
    FULL,
    LOG_LOSS,
    PAPER_LOSS,
    RAW_LOSS,
    TASKS,
)
from prefect_tune.optimizers.surrogates.fidelity_kernel import Basis, FidelityKernel
from prefect_tune.optimizers.surrogates.stationary import Matern52

BASES = {
    "log loss": LOG_LOSS,
    "raw loss": RAW_LOSS,
    "paper": PAPER_LOSS,
    "cost": COST,
    "tasks": TASKS,
    "full": FULL,
}
SMOOTH = {name: basis for name, basis in BASES.items() if name != "tasks"}
INPUTS = pipeline_inputs(mixed_space())


def kernel(basis: Basis) -> FidelityKernel:
    return FidelityKernel(Matern52([0, 1]), 2, basis)


def rows(n: int, seed: int) -> np.ndarray:
    """Two numbers and s, which is 1 in every third row."""
    inputs = np.random.default_rng(seed).random((n, 3))
    inputs[::3, 2] = 1.0
    return inputs


def drawn_theta(kernel: FidelityKernel, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([rng.uniform(p.lower, p.upper) for p in kernel.parameters])


def test_worked_covariance() -> None:
    """Fabolas sheet, T2 and T3."""
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


@pytest.mark.parametrize("name", BASES)
@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_covariances_over_numbers_are_symmetric_and_positive(name: str, seed: int) -> None:
    of_basis, inputs = kernel(BASES[name]), rows(9, seed)
    theta = drawn_theta(of_basis, seed)
    K = of_basis.covariance(theta, inputs, inputs)
    assert pytest.approx(K.T, rel=1e-12) == K
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.trace(K)
    assert np.diag(K) == pytest.approx(of_basis.variance(theta, inputs), rel=1e-9)


@pytest.mark.parametrize("name", ["log loss", "cost", "tasks"])
@settings(max_examples=30)
@given(seed=st.integers(0, 10_000))
def test_covariances_over_pipelines_are_symmetric_and_positive(name: str, seed: int) -> None:
    assert INPUTS.within is not None
    of_basis = FidelityKernel(INPUTS.within, INPUTS.width, BASES[name])
    rng = np.random.default_rng(seed)
    candidates = INPUTS.candidates.sample(12, rng)
    inputs = INPUTS.at(candidates, rng.choice([0.0, 0.3, 0.8, 1.0], 12))
    K = of_basis.covariance(drawn_theta(of_basis, seed), inputs, inputs)
    assert pytest.approx(K.T, rel=1e-12) == K
    assert np.linalg.eigvalsh(K).min() > -1e-12 * np.trace(K)


@pytest.mark.parametrize("name", BASES)
def test_gradients_by_parameter_agree_with_central_differences(name: str) -> None:
    of_basis, inputs = kernel(BASES[name]), rows(7, 0)
    rng = np.random.default_rng(1)
    theta = rng.normal(-0.3, 0.4, len(of_basis.parameters))
    weights = rng.normal(size=(7, 7))
    weights = weights + weights.T
    K, pull = of_basis.pullback(theta, inputs)
    assert pytest.approx(of_basis.covariance(theta, inputs, inputs), abs=1e-12) == K
    expected = [
        np.sum(
            weights
            * (
                of_basis.covariance(theta + e, inputs, inputs)
                - of_basis.covariance(theta - e, inputs, inputs)
            )
        )
        / 2e-5
        for e in 1e-5 * np.eye(len(theta))
    ]
    assert pull(weights) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_by_input_and_size_agree_with_central_differences(name: str) -> None:
    of_basis, inputs = kernel(SMOOTH[name]), rows(7, 2)
    rng = np.random.default_rng(1)
    theta, weights = rng.normal(-0.3, 0.4, len(of_basis.parameters)), rng.normal(size=(2, 5))
    a, b = inputs[1:3], inputs[[0, 3, 4, 5, 6]]
    K, pull = of_basis.input_pullback(theta, a, b)
    assert pytest.approx(of_basis.covariance(theta, a, b), abs=1e-12) == K
    gradient, of_variance = pull(weights), of_basis.variance_gradient(theta, a)
    for column in range(3):
        step = np.zeros(3)
        step[column] = 1e-5
        above, below = (
            of_basis.covariance(theta, a + step, b),
            of_basis.covariance(theta, a - step, b),
        )
        expected = (weights * (above - below)).sum(axis=1) / 2e-5
        assert gradient[:, column] == pytest.approx(expected, rel=1e-6, abs=1e-7)
        above, below = of_basis.variance(theta, a + step), of_basis.variance(theta, a - step)
        assert of_variance[:, column] == pytest.approx((above - below) / 2e-5, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", BASES)
def test_the_functions_of_the_inputs_add_up_to_the_covariance(name: str) -> None:
    """f(x, s) = phi(s)'g(x)."""
    of_basis, inputs = kernel(BASES[name]), rows(8, 3)
    theta = drawn_theta(of_basis, 3)
    a, b = inputs[:5], inputs[5:]
    phi = of_basis.functions(b)
    latent = of_basis.latent_covariance(theta, a, b)
    assert np.einsum("kij,jk->ij", latent, phi) == pytest.approx(
        of_basis.covariance(theta, a, b), rel=1e-9
    )
    alone = of_basis.latent_variance(theta, b)
    assert np.einsum("jk,jkl,jl->j", phi, alone, phi) == pytest.approx(
        of_basis.variance(theta, b), rel=1e-9
    )


def test_the_common_curve_is_shared_by_configurations_that_have_nothing_else_in_common() -> None:
    of_log = kernel(LOG_LOSS)
    theta = np.array([-3.0, -3.0, 0.0, 0.0, 0.0, 0.0])
    a, b = np.array([[0.0, 0.0, 0.5]]), np.array([[900.0, 900.0, 0.5]])
    expected = 1.0 + 4.0 * 0.5**2 + 0.02 * 0.5**6
    assert of_log.covariance(theta, a, b)[0, 0] == pytest.approx(expected)


def test_the_third_weight_is_independent_of_the_others() -> None:
    weights = kernel(LOG_LOSS).weights(np.array([0.1, 0.4, -0.2, np.log(0.15)]))
    assert weights[2, :2].tolist() == weights[:2, 2].tolist() == [0.0, 0.0]
    assert weights[2, 2] == pytest.approx(0.15**2)


@pytest.mark.parametrize("n", [0, 4])
def test_a_basis_of_a_rank_that_is_not_there_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 3 functions; got {n}"):
        Basis(FULL.functions, FULL.slopes, (1.0,) * n)
