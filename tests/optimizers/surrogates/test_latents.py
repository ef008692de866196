import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefect_tune.optimizers.methods.fabolas.sizes import COST, FULL, LOG_LOSS, PAPER_LOSS
from prefect_tune.optimizers.surrogates.fidelity_kernel import (
    Basis,
    FidelityKernel,
    Latents,
    latents_of,
)
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.noise import FallingNoise
from prefect_tune.optimizers.surrogates.stationary import Matern52

BASES = {"log loss": LOG_LOSS, "paper": PAPER_LOSS, "cost": COST, "full": FULL}


def process(basis: Basis, n: int = 12, seed: int = 0) -> GaussianProcess:
    rng = np.random.default_rng(seed)
    kernel = FidelityKernel(Matern52([0, 1]), 2, basis)
    theta = np.append(rng.normal(-0.4, 0.4, len(kernel.parameters)), np.log([0.01, 0.05]))
    targets = rng.normal(size=n)
    return GaussianProcess.given(
        kernel, theta, rng.random((n, 3)), targets / targets.std(), mean=0.0, noise=FallingNoise(2)
    )


def at(inputs: np.ndarray, s: float) -> np.ndarray:
    return np.column_stack([inputs[:, :2], np.full(len(inputs), s)])


@pytest.mark.parametrize("name", BASES)
@settings(max_examples=8)
@given(n=st.integers(2, 12), s=st.floats(0, 1), seed=st.integers(0, 1000))
def test_the_curves_are_the_predictions_at_all_sizes(
    name: str, n: int, s: float, seed: int
) -> None:
    learned = process(BASES[name], n, seed)
    rng = np.random.default_rng(seed + 1)
    candidates, representers = rng.random((4, 3)), at(rng.random((5, 3)), 1.0)
    latents = latents_of(learned, candidates, representers)
    phi = BASES[name].functions(np.array([s]))[0]
    rows = at(candidates, s)
    mean, deviation = learned.predict(rows)
    assert latents.mean @ phi == pytest.approx(mean, abs=1e-9)
    assert latents.covariance @ phi @ phi == pytest.approx(deviation**2, abs=1e-9)
    covariance = np.einsum("car,a->cr", latents.cross, phi)
    assert covariance == pytest.approx(learned.covariance(rows, representers), abs=1e-9)


def test_the_size_of_a_candidate_is_not_read() -> None:
    learned, rng = process(LOG_LOSS), np.random.default_rng(1)
    candidates, representers = rng.random((3, 3)), at(rng.random((2, 3)), 1.0)
    one, other = (latents_of(learned, at(candidates, s), representers) for s in (0.0, 1.0))
    assert (one.mean == other.mean).all()
    assert (one.cross == other.cross).all()


def test_a_worked_candidate() -> None:
    """Fabolas sheet, T4 and T5."""
    kernel = FidelityKernel(Matern52([0, 1]), 2, PAPER_LOSS)
    theta = np.append(np.log([0.4, 0.8, 0.9]), [-0.3, np.log(0.5), np.log(0.01), -80.0])
    inputs, targets = np.array([[0.2, 0.5, 0.2], [0.5, 0.1, 0.7]]), np.array([1.0, -1.0])
    learned = GaussianProcess.given(kernel, theta, inputs, targets, mean=0.0, noise=FallingNoise(2))
    representers = np.array([[0.3, 0.3, 1.0], [0.8, 0.2, 1.0]])
    one = latents_of(learned, representers[:1], representers)
    assert one.mean[0] == pytest.approx([0.1400832002, 0.3898561977], abs=1e-9)
    expected = np.array([[0.1273484837, -0.1443698840], [-0.1443698840, 0.2891478403]])
    assert one.covariance[0] == pytest.approx(expected, abs=1e-9)
    candidate = latents_of(learned, np.array([[0.4, 0.4, 0.0]]), representers)
    phi = PAPER_LOSS.functions(np.array([0.3]))[0]
    assert phi @ candidate.cross[0] == pytest.approx([0.0287248258, -0.0035191493], abs=1e-9)
    assert phi @ candidate.mean[0] == pytest.approx(0.0310808385, abs=1e-9)
    variance = phi @ candidate.covariance[0] @ phi + 0.01 + 1e-9
    assert variance == pytest.approx(0.0941646351, abs=2e-9)


def test_a_process_without_a_fidelity_has_no_curves() -> None:
    plain = GaussianProcess.given(
        Matern52([0]), np.log([0.5, 0.01]), np.zeros((1, 1)), np.ones(1), mean=0.0
    )
    with pytest.raises(TypeError, match="FidelityKernel; got Matern52"):
        latents_of(plain, np.zeros((1, 1)), np.zeros((1, 1)))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((3,), (3, 2, 2), (3, 2, 5)), "the mean has shape"),
        (((3, 2), (3, 2), (3, 2, 5)), "the covariance has shape"),
        (((3, 2), (3, 2, 2), (3, 5)), "the cross-covariance has shape"),
        (((3, 2), (3, 2, 2), (2, 3, 5)), "the cross-covariance has shape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    shapes: tuple[tuple[int, ...], ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Latents(*(np.zeros(shape) for shape in shapes))
