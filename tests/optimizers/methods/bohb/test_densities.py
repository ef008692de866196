import numpy as np
import pytest
from flash_worlds import counted_space
from scipy.stats import truncnorm
from worlds import mixed_space

from prefect_tune.optimizers.methods.bohb import KernelDensity
from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace
from prefect_tune.optimizers.space.sampling import sample_configuration


def one_number(*units: float) -> tuple[CandidateSpace, Candidates]:
    space = CandidateSpace(counted_space((1,)))
    return space, at(*units)


def at(*units: float) -> Candidates:
    return Candidates(np.zeros((len(units), 1), dtype=np.intp), np.array(units)[:, None])


def test_one_number_has_truncated_normal_kernels_and_the_prior() -> None:
    space, points = one_number(0.1, 0.3, 0.8)
    density = KernelDensity.fit(space, points, 1)
    width = 3 ** (-1 / 5) * np.std([0.1, 0.3, 0.8])
    x = np.array([0.0, 0.2, 0.9])
    kernels = [truncnorm(-c / width, (1 - c) / width, c, width).pdf(x) for c in (0.1, 0.3, 0.8)]
    expected = (np.sum(kernels, axis=0) + 1) / 4
    assert np.exp(density.log_density(at(*x))) == pytest.approx(expected)


def test_an_algorithm_that_none_has_keeps_the_share_of_one_more() -> None:
    space = CandidateSpace(counted_space((2,), 0))
    points = Candidates(np.zeros((3, 1), dtype=np.intp), np.empty((3, 0)))
    density = KernelDensity.fit(space, points, 1)
    leaving = 3 ** (-1 / 5) * (1 - (3 / 4) ** 2 - (1 / 4) ** 2)
    other = Candidates(np.ones((1, 1), dtype=np.intp), np.empty((1, 0)))
    assert np.exp(density.log_density(other)) == pytest.approx((3 * leaving + 1) / 4)


def test_a_density_is_one_in_the_mean_over_the_prior() -> None:
    space = CandidateSpace(mixed_space())
    rng = np.random.default_rng(0)
    points = space.encode(sample_configuration(mixed_space(), rng) for _ in range(12))
    density = KernelDensity.fit(space, points, 4)
    paths = np.array([(a, b) for a in range(2) for b in range(3)])  # those that cannot run too
    algorithms = paths[rng.integers(6, size=40_000)]
    drawn = Candidates(algorithms, rng.random((40_000, len(space.columns))))
    assert np.exp(density.log_density(drawn)).mean() == pytest.approx(1.0, abs=0.05)


def test_what_a_configuration_does_not_have_does_not_count() -> None:
    space = CandidateSpace(mixed_space())
    rng = np.random.default_rng(1)
    points = space.encode(sample_configuration(mixed_space(), rng) for _ in range(12))
    density = KernelDensity.fit(space, points, 4)
    drawn = space.sample(50, rng)
    other = np.where(space.columns.active(drawn), drawn.units, rng.random(drawn.units.shape))
    moved = Candidates(drawn.algorithms, other)
    assert density.log_density(moved) == pytest.approx(density.log_density(drawn))


def test_draws_can_run_stay_near_and_leave_for_what_no_good_one_has() -> None:
    space = CandidateSpace(counted_space((4,)))
    points = Candidates(np.zeros((20, 1), dtype=np.intp), np.full((20, 4), 0.3))
    density = KernelDensity.fit(space, points, 2)
    drawn = density.sample(500, 3.0, np.random.default_rng(0))
    counts = np.bincount(drawn.algorithms[:, 0], minlength=4) / len(drawn)
    assert 0.6 < counts[0] < 0.98
    assert counts[1:].min() > 0.005
    stayed = drawn.units[drawn.algorithms[:, 0] == 0, 0]
    assert np.median(np.abs(stayed - 0.3)) < 0.01
    mixed = CandidateSpace(mixed_space())
    some = mixed.encode(
        sample_configuration(mixed_space(), np.random.default_rng(i)) for i in range(6)
    )
    near = KernelDensity.fit(mixed, some, 4).sample(300, 3.0, np.random.default_rng(0))
    assert len(near) > 150
    assert mixed.can_run(near.algorithms).all()


def test_widening_draws_further_away() -> None:
    space, points = one_number(0.45, 0.5, 0.55)
    density = KernelDensity.fit(space, points, 1)
    near, far = (
        np.std(density.sample(2_000, widening, np.random.default_rng(0)).units)
        for widening in (1.0, 3.0)
    )
    assert far > 1.1 * near


def test_widening_leaves_more_often_for_other_algorithms() -> None:
    space = CandidateSpace(counted_space((4,)))
    points = Candidates(np.zeros((20, 1), dtype=np.intp), np.full((20, 4), 0.3))
    density = KernelDensity.fit(space, points, 2)
    near, far = (
        np.mean(density.sample(4_000, widening, np.random.default_rng(0)).algorithms != 0)
        for widening in (1.0, 5.0)
    )
    assert far > 2 * near
