from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import mixed_space

from prefect_tune.optimizers.methods.rungs import Rungs, counted_levels, highest_s
from prefect_tune.optimizers.space.sampling import sample_configuration

CONFIGURATION = sample_configuration(mixed_space(), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("total", "levels"),
    [(81, (1, 3, 9, 27, 81)), (50, (2, 6, 17, 50)), (3, (1, 3)), (2, (1, 2)), (10, (1, 3, 10))],
)
def test_levels_are_those_of_the_table(total: int, levels: tuple[int, ...]) -> None:
    assert counted_levels(total, 3, highest_s(total, 3)) == levels


def test_powers_are_counted_in_whole_numbers() -> None:
    assert [highest_s(3**k, 3) for k in range(1, 30)] == list(range(1, 30))


@given(st.integers(2, 10_000), st.integers(2, 10))
def test_levels_grow_from_at_least_one_to_all(total: int, eta: int) -> None:
    levels = counted_levels(total, eta, highest_s(total, eta))
    assert levels[0] >= 1
    assert levels[-1] == total
    assert all(below < above for below, above in pairwise(levels))


def test_the_last_rung_is_the_full_evaluation_and_the_others_are_not() -> None:
    epochs = Rungs("epochs", (2, 6, 50))
    assert [epochs.query(CONFIGURATION, k).epochs for k in range(3)] == [2, 6, None]
    subset = Rungs("subset", (1 / 9, 1 / 3, 1.0))
    assert [subset.query(CONFIGURATION, k).subset for k in range(3)] == [1 / 9, 1 / 3, 1.0]
    folds = Rungs("folds", (1, 3))
    assert [folds.query(CONFIGURATION, k).folds for k in range(2)] == [1, None]
    for rungs in (epochs, subset, folds):
        queries = [rungs.query(CONFIGURATION, k) for k in range(len(rungs))]
        assert [q.is_full for q in queries] == [False] * (len(rungs) - 1) + [True]
        assert [rungs.level(q) for q in queries] == list(rungs.levels)


@pytest.mark.parametrize("levels", [(3,), (3, 1), (1, 1, 3)])
def test_levels_that_do_not_grow_are_refused(levels: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="growing"):
        Rungs("folds", levels)
