"""Greedy selection of members."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefect_tune.tasks.ensembling.choosing import FitLimit, greedy_picks, weights_of

Y = np.array([1.0, 0.0, 1.0, 0.0])


def brier(mean: np.ndarray) -> float:
    return float(np.mean((mean[:, 0] - Y) ** 2))


def test_the_worked_example_of_the_sheet() -> None:
    p1, p2, p3 = [0.9, 0.2, 0.6, 0.4], [0.4, 0.1, 0.9, 0.6], [0.7, 0.6, 0.8, 0.2]
    members = [np.array(p)[:, None] for p in (p1, p2, p3)]
    picks, losses = greedy_picks(members, brier, 5)
    assert picks == [0, 0, 2, 0, 0]
    assert losses == pytest.approx([0.0925, 0.0925, 0.090278, 0.089375, 0.0893], abs=1e-6)
    assert weights_of(picks) == {0: 0.8, 2: 0.2}


def test_what_would_take_too_long_to_fit_is_not_picked_and_the_next_best_is() -> None:
    members = [
        np.array(p)[:, None]
        for p in ([0.8, 0.2, 0.2, 0.2], [0.7, 0.1, 1.0, 0.3], [0.8, 0.4, 0.9, 0.2])
    ]
    seconds = np.array([1.0, 2.5, 1.5])
    free, _ = greedy_picks(members, brier, 2)
    limited, _ = greedy_picks(members, brier, 2, FitLimit(seconds, 3.0))
    alone, _ = greedy_picks(members, brier, 2, FitLimit(seconds, 0.5))
    assert (free, limited, set(alone)) == ([0, 1], [0, 2], {0})


@given(st.integers(0, 1000), st.integers(1, 6), st.integers(1, 12))
def test_each_pick_is_the_best_of_all_at_its_place(seed: int, n: int, size: int) -> None:
    members = list(np.random.default_rng(seed).random((n, 4, 1)))
    members.sort(key=brier)
    picks, losses = greedy_picks(members, brier, size)
    assert 1 <= len(picks) == len(losses) <= size
    assert losses[-1] == min(losses)
    for k in range(1, len(picks)):
        before = [members[i] for i in picks[:k]]
        best = min(brier(np.mean([*before, m], axis=0)) for m in members)
        assert losses[k] == pytest.approx(best)
