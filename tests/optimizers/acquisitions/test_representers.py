import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefect_tune.optimizers.acquisitions.entropy import choose_representers


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def draws_with_minima(minima: list[list[int]], n: int) -> np.ndarray:
    """Draws (K, T, P) whose minima over a pool of n points are these."""
    draws = rng().uniform(size=(len(minima), len(minima[0]), n))
    k, t = np.indices(np.shape(minima))
    draws[k, t, minima] = -1.0
    return draws


@given(st.integers(1, 9), st.integers(1, 8), st.integers(1, 60), st.integers(1, 60), st.data())
@settings(max_examples=60, deadline=None)
def test_they_are_as_many_as_asked_for_and_all_different(
    samples: int, draws: int, pool: int, n: int, data: st.DataObject
) -> None:
    source = rng(data.draw(st.integers(0, 2**32)))
    joint, improvement = source.normal(size=(samples, draws, pool)), source.normal(size=pool)
    chosen = choose_representers(joint, np.tile(improvement, (samples, 1)), n, source)
    assert len(set(chosen.tolist())) == len(chosen) == min(n, pool)
    assert ((chosen >= 0) & (chosen < pool)).all()


def test_the_minima_of_joint_draws_come_first() -> None:
    """Where expected improvement sees nothing: it is least there."""
    minima = [[7, 7, 31, 7, 12], [31, 2, 2, 2, 2]]
    improvement = np.zeros((2, 40))
    improvement[:, [7, 31, 12, 2]] = -1e4
    chosen = choose_representers(draws_with_minima(minima, 40), improvement, 10, rng())
    assert chosen[:4].tolist() == [7, 31, 12, 2]


def test_a_sample_gives_up_to_its_share_of_six_tenths() -> None:
    minima = [[0, 1, 1, 2, 3, 4, 5], [10, 11, 10, 12, 13, 14, 15]]
    improvement = np.zeros((2, 40))
    improvement[:, :20] = -1e4
    chosen = choose_representers(draws_with_minima(minima, 40), improvement, 10, rng())
    assert chosen[:6].tolist() == [0, 1, 2, 10, 11, 12]
    assert (chosen[6:] >= 20).all()


def test_of_more_samples_than_representers_each_gives_one_until_there_are_enough() -> None:
    draws = draws_with_minima([[i] for i in range(6)], 8)
    chosen = choose_representers(draws, np.zeros((6, 8)), 4, rng())
    assert chosen.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("level", [0.0, -5000.0])
def test_the_rest_is_drawn_by_improvement_without_replacement(level: float) -> None:
    """Rows 1 to 4 have weights 1, 2, 3, 4 summed over two samples, far below what exp can say."""
    weights = np.array([[0.5, 1.5, 0.5, 3.0], [0.5, 0.5, 2.5, 1.0]])
    improvement = np.hstack([np.full((2, 1), 10.0), np.log(weights)]) + level
    draws = draws_with_minima([[0], [0]], 5)
    source, repeats = rng(), 4000
    seconds = [choose_representers(draws, improvement, 3, source)[1:] for _ in range(repeats)]
    counts = np.bincount(np.concatenate(seconds), minlength=5)[1:] / repeats
    p = np.arange(1, 5) / 10
    expected = p * (1 + sum(q / (1 - q) for q in p) - p / (1 - p))
    assert counts == pytest.approx(expected, abs=5 * np.sqrt(0.25 / repeats))


def test_points_without_improvement_come_last() -> None:
    improvement = np.full((1, 6), -np.inf)
    improvement[0, [2, 4]] = -700.0
    for seed in range(20):
        chosen = choose_representers(draws_with_minima([[0]], 6), improvement, 4, rng(seed))
        assert set(chosen[1:3].tolist()) == {2, 4}


def test_the_same_random_numbers_give_the_same_points() -> None:
    draws, improvement = rng(1).normal(size=(3, 4, 50)), rng(2).normal(size=(3, 50))
    one, again = (choose_representers(draws, improvement, 20, rng(5)) for _ in range(2))
    assert (one == again).all()
    assert (one != choose_representers(draws, improvement, 20, rng(6))).any()


def test_bad_input_is_refused() -> None:
    draws, improvement = np.zeros((2, 3, 4)), np.zeros((2, 4))
    with pytest.raises(ValueError, match=r"draws of shape \(2, 3, 4\) and improvements of shape"):
        choose_representers(draws, improvement[:, :3], 2, rng())
    with pytest.raises(ValueError, match="0 representers; ask for 1 or more"):
        choose_representers(draws, improvement, 0, rng())
    with pytest.raises(ValueError, match="is NaN"):
        choose_representers(draws, improvement * np.nan, 2, rng())
