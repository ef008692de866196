import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.optimizers.methods.bapi.observations import chosen_epochs, thinned
from prefect_tune.optimizers.surrogates.curve_kernel import Decay

OF_TIME = Decay()
THETA = np.log([0.5, 1.0, 1.0, 0.3])
NOISE = 0.001


def chosen(epochs: list[int], n_points: int, theta: np.ndarray = THETA) -> list[int]:
    return chosen_epochs(epochs, n_points, 50, of_time=OF_TIME, theta=theta, noise=NOISE)


def test_worked_points_of_a_curve() -> None:
    """Sheet, W13: of 20 epochs of 50 the last one, the first, and the seventh."""
    t = np.arange(1, 21) / 50
    covariance = OF_TIME.covariance(THETA, t, t)
    left = np.diag(covariance) - covariance[-1] ** 2 / (covariance[-1, -1] + NOISE)
    assert left[[0, 4]] == pytest.approx([0.2963401, 0.1104717], abs=1e-6)
    assert chosen(list(range(1, 21)), 3) == [1, 7, 20]
    assert chosen(list(range(1, 21)), 2) == [1, 20]
    assert chosen(list(range(1, 21)), 1) == [20]


def test_a_short_curve_is_learned_from_whole() -> None:
    assert chosen([1, 2], 3) == [1, 2]
    assert chosen([4], 3) == [4]


def test_epochs_that_are_not_known_are_not_chosen() -> None:
    assert set(chosen([5, 10, 15, 20, 25], 3)) <= {5, 10, 15, 20, 25}


@given(
    st.sets(st.integers(1, 50), min_size=1),
    st.integers(1, 8),
    st.lists(st.floats(-1.5, 1.5), min_size=4, max_size=4),
)
def test_points_are_few_rising_known_and_the_last_is_among_them(
    known: set[int], n_points: int, shift: list[float]
) -> None:
    epochs = sorted(known)
    points = chosen(epochs, n_points, THETA + np.array(shift))
    assert points == sorted(set(points))
    assert set(points) <= known
    assert points[-1] == epochs[-1]
    assert len(points) == min(n_points, len(epochs))


def test_too_many_points_thin_the_worst_curves_first() -> None:
    assert thinned([3, 3, 3, 3], [4.0, 1.0, 3.0, 2.0], 8) == [True, False, True, False]
    assert thinned([3, 3, 3, 3], [4.0, 1.0, 3.0, 2.0], 12) == [False] * 4


def test_the_best_curve_keeps_its_points_even_above_the_cap() -> None:
    assert thinned([3] * 5, [5.0, 1.0, 3.0, 2.0, 4.0], 2) == [True, False, True, True, True]


@given(st.lists(st.tuples(st.integers(1, 3), st.floats(0, 100)), min_size=1, max_size=200))
def test_the_cap_holds_while_curves_can_be_thinned(curves: list[tuple[int, float]]) -> None:
    counts, losses = [n for n, _ in curves], [loss for _, loss in curves]
    is_thinned = thinned(counts, losses, 150)
    total = sum(1 if cut else n for n, cut in zip(counts, is_thinned, strict=True))
    best = losses.index(min(losses))
    assert total <= max(150, len(counts) + counts[best] - 1)
    assert not is_thinned[best]
    kept = [loss for loss, cut in zip(losses, is_thinned, strict=True) if not cut]
    cut = [loss for loss, cut in zip(losses, is_thinned, strict=True) if cut]
    assert not cut or max(kept) <= min(cut)
