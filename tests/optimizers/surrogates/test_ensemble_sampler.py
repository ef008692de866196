import numpy as np
import pytest

from prefect_tune.optimizers.methods.fabolas.inference import advanced, scattered
from prefect_tune.optimizers.surrogates.kernel import Parameter

BOX = (Parameter("a", 0.5, 0.0, 1.0), Parameter("b", 0.0, -2.0, 5.0, (0.0, 1.0)))
MEAN = np.array([1.0, -2.0])
COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.8]])


def log_normal_density(theta: np.ndarray) -> float:
    away = theta - MEAN
    return -0.5 * float(away @ np.linalg.solve(COVARIANCE, away))


def log_box_density(theta: np.ndarray) -> float:
    """Highest beyond a corner of the box."""
    inside = all(p.lower <= x <= p.upper for p, x in zip(BOX, theta, strict=True))
    return 3 * float(theta.sum()) if inside else -np.inf


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


def test_the_walkers_that_are_handed_in_stay_as_they_were() -> None:
    start = np.random.default_rng(1).normal(size=(8, 2))
    kept = start.copy()
    moved = advanced(start, log_normal_density, 3, np.random.default_rng(0))
    assert (start == kept).all()
    assert (moved != start).any()


def test_as_many_sweeps_are_made_as_are_asked_for() -> None:
    seen: list[np.ndarray] = []

    def counted(theta: np.ndarray) -> float:
        seen.append(theta)
        return log_normal_density(theta)

    advanced(np.random.default_rng(1).normal(size=(8, 2)), counted, 5, np.random.default_rng(0))
    assert len(seen) == 8 * (1 + 5)


def test_walkers_stay_within_the_bounds() -> None:
    rng = np.random.default_rng(0)
    walkers = scattered(BOX, np.array([1.0, 5.0]), rng)
    lower, upper = np.array([0.0, -2.0]), np.array([1.0, 5.0])
    for _ in range(20):
        assert ((walkers >= lower) & (walkers <= upper)).all()
        walkers = advanced(walkers, log_box_density, 3, rng)
    assert walkers.mean(axis=0) == pytest.approx(upper, abs=0.6)


@pytest.mark.parametrize("centre", [[0.0, -2.0], [1.0, 5.0], [0.5, 0.0]])
def test_scattered_walkers_span_all_directions_even_around_a_corner(centre: list[float]) -> None:
    walkers = scattered(BOX, np.array(centre), np.random.default_rng(0))
    assert walkers.shape == (6, 2)
    assert ((walkers > [0.0, -2.0]) & (walkers < [1.0, 5.0])).all()
    assert len(np.unique(walkers, axis=0)) == 6
    assert np.linalg.matrix_rank(walkers - walkers.mean(axis=0)) == 2


def test_walkers_do_not_start_on_a_bound_that_they_could_not_leave() -> None:
    """Of a parameter whose prior lies beyond its bounds."""
    box = (BOX[0], Parameter("c", 0.0, -1.0, 0.0, (5.0, 0.1)))
    walkers = scattered(box, np.array([0.5, 0.0]), np.random.default_rng(0))
    assert (walkers[:, 1] < 0).all()
    assert len(np.unique(walkers[:, 1])) == 6


def test_scattered_walkers_lie_between_the_centre_and_draws_of_the_prior() -> None:
    narrow = (Parameter("a", 0.0, -9.0, 9.0, (0.0, 1e-3)),)
    walkers = scattered(narrow, np.array([5.0]), np.random.default_rng(0), n=200)
    assert walkers.shape == (200, 1)
    assert walkers.min() > -0.01
    assert walkers.max() < 5.01
    assert walkers.mean() == pytest.approx(2.5, abs=0.5)


def test_there_are_never_fewer_walkers_than_the_stretch_moves_need() -> None:
    assert len(scattered(BOX, np.array([0.5, 0.0]), np.random.default_rng(0), n=2)) == 6
