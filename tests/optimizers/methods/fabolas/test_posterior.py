import numpy as np
import pytest

from prefect_tune.optimizers.acquisitions.entropy import (
    Minimiser,
    information_gain,
    whitened_normals,
)
from prefect_tune.optimizers.methods.fabolas.posterior import EVERYTHING, Posterior, model_keys
from prefect_tune.optimizers.methods.fabolas.sizes import LOG_LOSS
from prefect_tune.optimizers.surrogates.fidelity_kernel import FidelityKernel, Latents
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.noise import FallingNoise
from prefect_tune.optimizers.surrogates.stationary import Matern52

SIZES = np.array([0.0, 0.4, 1.0])


def rows(n: int, model: float, seed: int, s: float | None = None) -> np.ndarray:
    """A model, two numbers and s."""
    inputs = np.random.default_rng(seed).random((n, 4))
    inputs[:, 0] = model
    if s is not None:
        inputs[:, 3] = s
    return inputs


def process(model: float, seed: int, n: int = 10) -> GaussianProcess:
    rng = np.random.default_rng(seed)
    kernel = FidelityKernel(Matern52([1, 2]), 3, LOG_LOSS)
    theta = np.append(rng.normal(-0.4, 0.4, len(kernel.parameters)), np.log([0.02, 0.5]))
    return GaussianProcess.given(
        kernel,
        theta,
        rows(n, model, seed),
        rng.normal(size=n),
        mean=0.0,
        noise=FallingNoise(3),
        scale=1.0,
    )


ONE, TWO = process(0, 1), process(1, 2)
PARTED = Posterior({0: ONE, 1: TWO}, 0)
MIXED = np.vstack([rows(2, 0, 3), rows(3, 1, 4), rows(2, 0, 5)])
OF_ONE = np.array([0, 1, 5, 6])


def test_keys_are_the_models_or_one_for_everything() -> None:
    assert model_keys(MIXED, 0).tolist() == [0, 0, 1, 1, 1, 0, 0]
    assert model_keys(MIXED, None).tolist() == [EVERYTHING] * 7


def test_rows_of_a_model_without_results_are_not_known() -> None:
    unknown = np.vstack([MIXED, rows(1, 2, 0)])
    assert PARTED.knows(unknown).tolist() == [True] * 7 + [False]
    assert Posterior({EVERYTHING: ONE}).knows(unknown).all()


def test_each_row_is_predicted_by_the_process_of_its_model() -> None:
    mean, variance = PARTED.predict(MIXED)
    noise = PARTED.noise(MIXED)
    of_two = np.arange(2, 5)
    for own, places in ((ONE, OF_ONE), (TWO, of_two)):
        expected, deviation = own.predict(MIXED[places])
        assert mean[places] == pytest.approx(expected)
        assert variance[places] == pytest.approx(deviation**2)
        assert noise[places] == pytest.approx(own.noise_variance(MIXED[places]))


def test_models_are_independent_and_each_is_joint_within() -> None:
    mean, covariance = PARTED.joint(MIXED)
    of_two = np.arange(2, 5)
    assert (covariance[np.ix_(OF_ONE, of_two)] == 0).all()
    assert (covariance[np.ix_(of_two, OF_ONE)] == 0).all()
    for own, places in ((ONE, OF_ONE), (TWO, of_two)):
        expected, block = own.joint(MIXED[places])
        assert mean[places] == pytest.approx(expected[:, 0])
        assert covariance[np.ix_(places, places)] == pytest.approx(block)
        assert np.abs(block - np.diag(np.diag(block))).max() > 1e-4
    assert np.linalg.eigvalsh(covariance).min() > -1e-12


def minimiser_of(posterior: Posterior, representers: np.ndarray) -> Minimiser:
    mean, covariance = posterior.joint(representers)
    normals = whitened_normals(len(representers), 256, np.random.default_rng(0))
    return Minimiser.of(mean, covariance, normals)


def test_gains_of_one_model_are_those_of_one_process() -> None:
    candidates, representers = rows(6, 0, 6), rows(8, 0, 7, 1.0)
    parted, whole = Posterior({0: ONE}, 0), Posterior({EVERYTHING: ONE})
    gains = [
        p.gains(minimiser_of(p, representers), representers, candidates, LOG_LOSS, SIZES)
        for p in (parted, whole)
    ]
    assert gains[0].shape == (6, 3)
    assert gains[0] == pytest.approx(gains[1])


def test_gains_are_those_of_joint_predictions() -> None:
    """From covariances of all rows together, and size by size."""
    representers = np.vstack([rows(4, 0, 7, 1.0), rows(4, 1, 8, 1.0)])[[0, 4, 1, 5, 2, 6, 3, 7]]
    minimiser = minimiser_of(PARTED, representers)
    gains = PARTED.gains(minimiser, representers, MIXED, LOG_LOSS, SIZES)
    assert gains.max() > 0.01
    for i, candidate in enumerate(MIXED):
        for j, s in enumerate(SIZES):
            at = candidate.copy()
            at[3] = s
            mean, covariance = PARTED.joint(np.vstack([at[None], representers]))
            latents = Latents(
                mean[:1, None], covariance[:1, :1, None], covariance[None, None, 0, 1:]
            )
            noise = PARTED.noise(at[None])
            alone = information_gain(minimiser, latents, np.ones((1, 1)), noise)
            assert gains[i, j] == pytest.approx(alone[0, 0], abs=1e-8)


def test_less_noise_on_larger_subsets_is_more_information() -> None:
    representers, candidates = rows(6, 0, 7, 1.0), rows(20, 0, 6)
    posterior = Posterior({0: ONE}, 0)
    minimiser = minimiser_of(posterior, representers)
    gains = posterior.gains(minimiser, representers, candidates, LOG_LOSS, np.array([0.0, 1.0]))
    assert (gains[:, 1] > gains[:, 0]).mean() > 0.8


def test_outcomes_are_drawn_with_the_moments_predicted_noise_included() -> None:
    row = rows(1, 0, 9, 0.1)
    rng = np.random.default_rng(0)
    drawn = [
        float(PARTED.with_outcomes_drawn(row, rng).processes[0].standardised[-1, 0])
        for _ in range(800)
    ]
    mean, deviation = ONE.predict(row)
    variance = float(deviation[0] ** 2 + ONE.noise_variance(row)[0])
    outcomes = np.array(drawn)
    assert ONE.noise_variance(row)[0] > 0.4
    assert outcomes.mean() == pytest.approx(float(mean[0]), abs=4 * np.sqrt(variance / 800))
    assert outcomes.var() == pytest.approx(variance, rel=0.2)


def test_outcomes_change_their_model_alone_and_leave_the_belief_as_it_was() -> None:
    before = ONE.predict(MIXED[OF_ONE])[1].copy()
    after = PARTED.with_outcomes_drawn(rows(2, 0, 9, 0.5), np.random.default_rng(0))
    assert after.processes[1] is TWO
    assert len(after.processes[0].inputs) == 12
    assert PARTED.processes[0] is ONE
    assert (after.processes[0].predict(MIXED[OF_ONE])[1] < before).all()


def test_rows_of_an_unknown_model_are_passed_over() -> None:
    under_way = np.vstack([rows(1, 5, 9), rows(1, 1, 9)])
    after = PARTED.with_outcomes_drawn(under_way, np.random.default_rng(0))
    assert after.processes[0] is ONE
    assert len(after.processes[1].inputs) == 11
    assert set(after.processes) == {0, 1}


def test_outcomes_are_drawn_in_turn() -> None:
    """Of one configuration twice, without much noise, the second is near to the first."""
    row = np.repeat(rows(1, 0, 9, 1.0), 2, axis=0)
    row[:, 1:3] = 5.0  # far from all that is known
    rng = np.random.default_rng(0)
    pairs = np.array(
        [PARTED.with_outcomes_drawn(row, rng).processes[0].standardised[-2:, 0] for _ in range(300)]
    )
    assert np.corrcoef(pairs.T)[0, 1] > 0.9
