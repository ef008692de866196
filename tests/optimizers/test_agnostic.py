"""Frequencies of the best in bootstraps."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from prefect_tune.optimizers.trials.losses import best_frequencies, frequencies_of_few
from prefect_tune.optimizers.trials.objective import Bootstraps

LOSSES = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 1]], dtype=float)
"""Of three models on four examples, shape (4, 3)."""
SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 8))
RISKS = arrays(np.float64, SHAPES, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0]))


def enumerated(n_draws: int) -> np.ndarray:
    """Weights over all resamples of so many draws, each of them once."""
    drawn = [np.bincount(d, minlength=4) / n_draws for d in product(range(4), repeat=n_draws)]
    return np.array(drawn)


def test_the_worked_example_shares_ties() -> None:
    weights = np.array([[2, 1, 1, 0], [0, 1, 2, 1], [1, 1, 1, 1]]) / 4
    risks = (weights @ LOSSES).T
    assert risks == pytest.approx(np.array([[0.25, 0.5, 0.5], [0.5, 0, 0.25], [0.25, 0.75, 0.5]]))
    assert best_frequencies(risks) == pytest.approx([1 / 6, 2 / 3, 1 / 6])


@pytest.mark.parametrize(
    ("n_draws", "expected"),
    [(4, [0.191406, 0.617188, 0.191406]), (2, [0.229167, 0.541667, 0.229167])],
)
def test_over_all_resamples_it_is_the_exact_posterior(n_draws: int, expected: list[float]) -> None:
    assert best_frequencies((enumerated(n_draws) @ LOSSES).T) == pytest.approx(expected, abs=1e-6)


@given(RISKS)
def test_frequencies_sum_to_one_and_count_bootstraps(risks: np.ndarray) -> None:
    frequencies = best_frequencies(risks)
    assert frequencies.sum() == pytest.approx(1)
    expected = np.zeros(len(risks))
    for column in risks.T:
        winners = np.flatnonzero(column == column.min())
        expected[winners] += 1 / len(winners) / risks.shape[1]
    assert frequencies == pytest.approx(expected)


@given(RISKS, st.sampled_from([1e-15, 0.1, 100.0, 1e12]))
def test_the_unit_of_losses_changes_nothing(risks: np.ndarray, slope: float) -> None:
    assert best_frequencies(slope * risks) == pytest.approx(best_frequencies(risks))


def test_equal_but_for_rounding_is_a_tie() -> None:
    assert best_frequencies(np.array([[0.3], [0.1 + 0.2]])).tolist() == [0.5, 0.5]


def test_ties_over_many_rows_are_those_of_whole_numbers() -> None:
    """Two models are wrong on the same rows, and their losses are added up in another order."""
    generator = np.random.default_rng(0)
    n_rows = 20_000
    counts = generator.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=40)
    wrong = generator.random(n_rows) < 0.3
    losses = counts / n_rows * wrong
    one_by_one, pairwise = losses.cumsum(axis=1)[:, -1], losses.sum(axis=1)
    assert not np.array_equal(one_by_one, pairwise)
    assert best_frequencies(np.stack([one_by_one, pairwise])).tolist() == [0.5, 0.5]


@pytest.mark.parametrize(("n", "share"), [(0, 0.5), (3, -0.1), (3, 1.5)])
def test_bootstraps_are_checked(n: int, share: float) -> None:
    with pytest.raises(ValueError, match="got"):
        Bootstraps(n, share)


@given(RISKS, st.integers(1, 6))
def test_few_models_are_as_often_the_best_as_among_themselves(risks: np.ndarray, most: int) -> None:
    found = frequencies_of_few(risks, most)
    members = np.flatnonzero(found)
    assert 1 <= len(members) <= most
    assert found.sum() == pytest.approx(1)
    if np.count_nonzero(best_frequencies(risks)) <= most:
        assert found == pytest.approx(best_frequencies(risks))
    else:
        assert found[members] == pytest.approx(best_frequencies(risks[members]))


def test_the_first_member_has_the_least_mean_risk_and_others_are_picked_by_their_own_share() -> (
    None
):
    risks = np.array([[0.3, 0.3, 0.3, 0.3], [0.0, 0.9, 0.9, 0.9], [0.9, 0.2, 0.2, 0.9]])
    assert frequencies_of_few(risks, 1) == pytest.approx([1, 0, 0])
    assert frequencies_of_few(risks, 2) == pytest.approx([0.5, 0, 0.5])
    assert frequencies_of_few(risks, 3) == pytest.approx([0.25, 0.25, 0.5])


def test_an_ensemble_of_no_model_is_refused() -> None:
    with pytest.raises(ValueError, match="got 0"):
        frequencies_of_few(np.ones((2, 3)), 0)
