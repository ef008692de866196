"""Parameters: the likeliest, drawn ones, and when they are fitted again."""

from typing import Any

import numpy as np
import pytest

from prefect_tune.optimizers.methods.fabolas.inference import (
    EVERYTHING,
    Group,
    Regression,
    advanced,
    scattered,
)
from prefect_tune.optimizers.methods.fabolas.recipe import PAPER_LOSS
from prefect_tune.optimizers.surrogates.fidelity_kernel import FidelityKernel
from prefect_tune.optimizers.surrogates.kernel import FallingNoise, Matern52, Parameter

KERNEL = FidelityKernel(Matern52([0, 1]), 2, PAPER_LOSS)
NOISE = FallingNoise(2)
PARAMETERS = (*KERNEL.parameters, *NOISE.parameters)
STARTS = [p.start for p in PARAMETERS]
OTHER = [round(p.start + 0.1, 6) for p in PARAMETERS]
KEY = str(EVERYTHING)
MAP = Regression(KERNEL, NOISE)
ENSEMBLE = Regression(KERNEL, NOISE, "ensemble", n_samples=5)


def group(n: int, seed: int = 0) -> Group:
    rng = np.random.default_rng(seed)
    inputs = rng.random((n, 3))
    targets = np.sin(5 * inputs[:, 0]) + (1 - inputs[:, 2]) ** 2 + 0.05 * rng.normal(size=n)
    return Group(inputs, (targets - targets.mean()) / targets.std())


def flat(n: int) -> Group:
    """Of equal targets, which leave a fit where it starts."""
    return Group(np.random.default_rng(0).random((n, 3)), np.zeros(n))


def learned(regression, of, kept=None, seed=0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return regression.learned({EVERYTHING: of}, {KEY: kept} if kept else {}, rng)[KEY]


def test_parameters_are_drawn_only_where_they_are_few_and_observations_are_not() -> None:
    assert "walkers" not in learned(ENSEMBLE, group(9))
    assert len(learned(ENSEMBLE, group(9))["thetas"]) == 1
    assert "walkers" in learned(ENSEMBLE, group(10))
    assert "walkers" not in learned(MAP, group(12))
    assert "walkers" not in learned(ENSEMBLE, flat(12))
    wide = FidelityKernel(Matern52(range(20)), 20, PAPER_LOSS)
    many = Regression(wide, FallingNoise(20), "ensemble", n_samples=5)
    rows = Group(np.random.default_rng(0).random((12, 21)), group(12).targets)
    assert "walkers" not in learned(many, rows)


def test_draws_are_walkers_within_the_bounds_around_what_is_likely() -> None:
    kept = learned(ENSEMBLE, group(30))
    walkers = np.array(kept["walkers"])
    assert walkers.shape == (2 * (len(PARAMETERS) + 1), len(PARAMETERS))
    assert ((walkers >= [p.lower for p in PARAMETERS]) & (walkers <= [p.upper for p in PARAMETERS])
            ).all()  # fmt: skip
    assert len(kept["thetas"]) == 5
    assert all(theta in kept["walkers"] for theta in kept["thetas"])
    assert len({tuple(theta) for theta in kept["thetas"]}) == 5
    noise = np.exp([theta[-2] for theta in kept["thetas"]])
    assert np.median(noise) < 0.1


def test_walkers_resume_where_they_were() -> None:
    """Close together, eight sweeps leave them close together; scattered anew they are not."""
    start = np.array(STARTS)
    near = start + 1e-4 * np.random.default_rng(1).random((18, len(start)))
    kept = {"walkers": near.tolist(), "thetas": near[:5].tolist(), "n": 29}
    after = np.array(learned(ENSEMBLE, group(30), kept)["walkers"])
    assert np.abs(after - start).max() < 0.1
    assert (np.sort(after, axis=0) != np.sort(np.round(near, 6), axis=0)).any()
    assert np.abs(np.array(learned(ENSEMBLE, group(30))["walkers"]) - start).max() > 0.5


@pytest.mark.parametrize("n", [65, 66])
def test_of_many_observations_a_fit_serves_until_three_more_have_come(n: int) -> None:
    kept = {"thetas": [OTHER], "n": 64}
    assert learned(MAP, group(n), kept) == kept
    fitted = learned(MAP, group(67), kept)
    assert fitted["n"] == 67
    assert fitted["thetas"] != [OTHER]


def test_with_few_observations_each_ask_fits_from_the_last_one() -> None:
    kept = {"thetas": [OTHER], "n": 63}
    fitted = learned(MAP, group(64), kept)
    assert fitted["n"] == 64
    assert fitted["thetas"] != [OTHER]
    assert learned(MAP, flat(5), {"thetas": [OTHER], "n": 4})["thetas"] == [OTHER]
    assert learned(MAP, flat(5))["thetas"][0] == pytest.approx(STARTS, abs=1e-6)


def test_parted_processes_start_from_the_joint_one_and_resume_from_their_own() -> None:
    kept = {KEY: {"walkers": [OTHER], "thetas": [OTHER], "n": 300}}
    rng = np.random.default_rng(0)
    parted = MAP.learned({0: flat(5), 2: flat(6)}, kept, rng)
    assert parted["0"] == {"thetas": [OTHER], "n": 5}
    assert parted["2"] == {"thetas": [OTHER], "n": 6}
    kept = {KEY: {"walkers": [OTHER], "thetas": [OTHER], "n": 80}}
    rng = np.random.default_rng(0)
    assert MAP.learned({0: group(70)}, kept, rng)["0"]["thetas"] != [OTHER]
    assert len(ENSEMBLE.learned({0: group(12)}, kept, rng)["0"]["walkers"]) > 2
    kept = {KEY: {"thetas": [STARTS], "n": 300}, "0": {"thetas": [OTHER], "n": 4}}
    parted = MAP.learned({0: flat(5)}, kept, np.random.default_rng(0))
    assert parted["0"]["thetas"] == [OTHER]


def test_there_is_a_posterior_for_each_draw_with_the_observations_of_now() -> None:
    kept = {KEY: learned(ENSEMBLE, group(12))}
    now = group(14)
    posteriors = ENSEMBLE.posteriors({EVERYTHING: now}, kept, None)
    assert len(posteriors) == 5
    for posterior, theta in zip(posteriors, kept[KEY]["thetas"], strict=True):
        process = posterior.processes[EVERYTHING]
        assert process.theta.tolist() == theta
        assert (process.inputs == now.inputs).all()
        assert process.mean == 0.0
        assert process.noise is NOISE


def test_processes_of_all_models_have_one_unit() -> None:
    """Of some the losses are far apart, of others near together: their means are compared."""
    near, far = group(9), group(8, seed=1)
    groups = {0: Group(near.inputs, 2 + 0.01 * near.targets), 1: Group(far.inputs, 9 * far.targets)}
    kept = {key: {"thetas": [STARTS]} for key in ("0", "1")}
    (posterior,) = MAP.posteriors(groups, kept, 0)
    for key, row in ((0, 0.0), (1, 1.0)):
        inputs = np.array([[row, 0.5, 0.3], [row, 0.2, 1.0]])
        mean, covariance = posterior.joint(inputs)
        expected, variance = posterior.predict(inputs)
        assert mean == pytest.approx(expected)
        assert np.diag(covariance) == pytest.approx(variance)
        assert posterior.noise(inputs) == pytest.approx(
            NOISE.variance(np.array(STARTS[-2:]), inputs)
        )
        assert posterior.processes[key].standardised[:, 0].tolist() == groups[key].targets.tolist()


def test_processes_that_were_parted_or_put_together_since_have_the_last_parameters() -> None:
    of_all, parts = {KEY: {"thetas": [OTHER]}}, {"0": {"thetas": [OTHER]}}
    (parted,) = MAP.posteriors({0: group(5), 1: group(6)}, of_all, 0)
    assert {k: p.theta.tolist() for k, p in parted.processes.items()} == {0: OTHER, 1: OTHER}
    (whole,) = MAP.posteriors({EVERYTHING: group(11)}, parts, None)
    assert whole.processes[EVERYTHING].theta.tolist() == OTHER


def test_a_process_with_fewer_draws_serves_all_of_them_and_one_without_is_left_out() -> None:
    kept = {"0": {"thetas": [STARTS, OTHER]}, "1": {"thetas": [OTHER]}}
    posteriors = MAP.posteriors({0: group(5), 1: group(6), 2: group(7)}, kept, 0)
    thetas = [{k: p.theta.tolist() for k, p in each.processes.items()} for each in posteriors]
    assert thetas == [{0: STARTS, 1: OTHER}, {0: OTHER, 1: OTHER}]
    assert [each.column for each in posteriors] == [0, 0]


BOX = (Parameter("a", 0.5, 0.0, 1.0), Parameter("b", 0.0, -2.0, 5.0, (0.0, 1.0)))
MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.8]])


def log_normal_density(theta: np.ndarray) -> float:
    away = theta - MEAN
    return -0.5 * float(away @ np.linalg.solve(COVARIANCE, away))


@pytest.mark.slow
def test_a_known_density_is_recovered() -> None:
    rng = np.random.default_rng(0)
    walkers = rng.normal(size=(20, 2))
    walkers = advanced(walkers, log_normal_density, 50, rng)
    draws = []
    for _ in range(150):
        walkers = advanced(walkers, log_normal_density, 5, rng)
        draws.append(walkers)
    all_of_them = np.vstack(draws)
    assert all_of_them.mean(axis=0) == pytest.approx(MEAN, abs=0.15)
    assert np.cov(all_of_them.T) == pytest.approx(COVARIANCE, abs=0.15)


def test_the_generator_decides_and_global_random_numbers_are_left_alone() -> None:
    start = np.random.default_rng(1).normal(size=(8, 2))
    before = np.random.get_state()  # noqa: NPY002 - it must stay as it is
    once, again, other = (
        advanced(start, log_normal_density, 4, np.random.default_rng(seed)) for seed in (3, 3, 4)
    )
    after = np.random.get_state()  # noqa: NPY002 - it must stay as it is
    assert (once == again).all()
    assert (once != other).any()
    assert before[2] == after[2]
    assert (before[1] == after[1]).all()


@pytest.mark.parametrize("centre", [[0.0, -2.0], [1.0, 5.0], [0.5, 0.0]])
def test_scattered_walkers_span_all_directions_even_around_a_corner(centre: list[float]) -> None:
    walkers = scattered(BOX, np.array(centre), np.random.default_rng(0))
    assert walkers.shape == (6, 2)
    assert ((walkers > [0.0, -2.0]) & (walkers < [1.0, 5.0])).all()
    assert len(np.unique(walkers, axis=0)) == 6
    assert np.linalg.matrix_rank(walkers - walkers.mean(axis=0)) == 2


def test_walkers_start_between_the_centre_and_the_prior_and_never_on_a_bound() -> None:
    """Of a parameter whose prior lies beyond its bounds."""
    box = (BOX[0], Parameter("c", 0.0, -1.0, 0.0, (5.0, 0.1)))
    walkers = scattered(box, np.array([0.5, 0.0]), np.random.default_rng(0))
    assert (walkers[:, 1] < 0).all()
    assert len(np.unique(walkers[:, 1])) == 6
    narrow = (Parameter("a", 0.0, -9.0, 9.0, (0.0, 1e-3)),)
    walkers = scattered(narrow, np.array([5.0]), np.random.default_rng(0), n=200)
    assert walkers.shape == (200, 1)
    assert walkers.min() > -0.01
    assert walkers.max() < 5.01
    assert walkers.mean() == pytest.approx(2.5, abs=0.5)
    assert len(scattered(BOX, np.array([0.5, 0.0]), np.random.default_rng(0), n=2)) == 6
