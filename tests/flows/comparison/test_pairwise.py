"""Statistics of pairs of methods: published values, enumeration, scipy, and properties."""

from itertools import product
from math import comb, inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.stats import beta, binom, poisson_binom, rankdata, ttest_1samp

from prefect_tune.flows.comparison.pairwise import (
    better_by_counts,
    better_by_errors,
    better_in_most,
    better_on_average,
    better_on_data_set,
    expected_ranks,
    pairwise,
    poisson_binomial,
    sign_test,
    wins,
)

FIVE = [0.9, 0.8, 0.6, 0.55, 0.3]
TWENTY_TWO = [0.95] * 12 + [0.7] * 6 + [0.2] * 4
UNKNOWN = np.array([nan])

probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=7)
some_losses = arrays.arrays(
    np.float64, st.tuples(st.integers(1, 8), st.integers(2, 4)),
    elements=st.sampled_from([0.1, 0.2, 0.3, 0.5, 0.8, inf]),
)  # fmt: skip


@pytest.mark.parametrize(
    ("n_won", "n", "p"),
    [(14, 18, 0.015442), (18, 22, 0.002172), (12, 22, 0.415906), (25, 39, 0.054065),
     (26, 39, 0.026626)],
)  # fmt: skip
def test_the_sign_test_has_its_known_values(n_won, n, p) -> None:
    assert sign_test(n_won, n - n_won) == pytest.approx(p, abs=5e-7)


@pytest.mark.parametrize(("n_won", "n_lost"), [(0, 0), (0, 3), (3, 0), (5, 2), (4, 4)])
def test_the_sign_test_counts_heads_of_a_coin(n_won, n_lost) -> None:
    n = n_won + n_lost
    expected = sum(comb(n, k) for k in range(n_won, n + 1)) / 2**n
    assert sign_test(n_won, n_lost) == pytest.approx(expected)
    assert sign_test(n_won, n_lost) == pytest.approx(binom.cdf(n_lost, n, 0.5))


def test_the_number_of_wins_has_its_known_distribution() -> None:
    expected = [0.00252, 0.0407, 0.2015, 0.3861, 0.2979, 0.07128]
    np.testing.assert_allclose(poisson_binomial(FIVE), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("given_probabilities", "expected"), [(FIVE, 0.662618), (TWENTY_TWO, 0.970185), ([1.0], 0.75)]
)
def test_the_poisson_binomial_test_has_its_known_values(given_probabilities, expected) -> None:
    assert better_in_most(given_probabilities) == pytest.approx(expected, abs=5e-7)


@given(probabilities)
def test_wins_are_counted_as_by_enumeration_and_by_scipy(given_probabilities) -> None:
    n = len(given_probabilities)
    expected, share = np.zeros(n + 1), 0.0
    for outcome in product([0, 1], repeat=n):
        chance = np.prod(
            [p if won else 1 - p for p, won in zip(given_probabilities, outcome, strict=True)]
        )
        k = sum(outcome)
        expected[k] += chance
        share += chance * beta(k + 1, n - k + 1).sf(0.5)
    np.testing.assert_allclose(poisson_binomial(given_probabilities), expected, atol=1e-12)
    theirs = poisson_binom(given_probabilities).pmf(np.arange(n + 1))
    np.testing.assert_allclose(theirs, expected, atol=1e-12)
    assert better_in_most(given_probabilities) == pytest.approx(share, abs=1e-12)


@given(probabilities)
def test_swapping_two_methods_gives_the_complement(given_probabilities) -> None:
    swapped = better_in_most([1 - p for p in given_probabilities])
    assert better_in_most(given_probabilities) == pytest.approx(1 - swapped, abs=1e-9)


@pytest.mark.parametrize(("won", "lost", "p"), [(12, 5, 0.951874), (5, 5, 0.5), (1, 0, 0.75)])
def test_counts_have_their_known_probabilities(won, lost, p) -> None:
    assert better_by_counts(won, lost) == pytest.approx(p, abs=5e-7)


def test_the_average_is_judged_by_students_t() -> None:
    differences = np.array([-0.3, 0.1, -0.4, -0.2, -0.1])
    expected = ttest_1samp(differences, 0, alternative="less").pvalue
    assert better_on_average(differences) == pytest.approx(1 - expected)
    assert better_on_average(-differences) == pytest.approx(expected)
    assert better_on_average(differences) > 0.9


@st.composite
def overlaps(draw) -> tuple[int, int, int, int]:
    """Rows that both models get wrong, either of them alone, and neither."""
    return tuple(draw(st.integers(0, 40)) for _ in range(4))


@given(overlaps())
def test_errors_are_never_judged_more_surely_than_the_rows_would_be(rows) -> None:
    both, first_alone, second_alone, neither = rows
    n_wrong, n_wrong_other = both + first_alone, both + second_alone
    found = better_by_errors(n_wrong, n_wrong_other, sum(rows))
    exact = better_by_counts(second_alone, first_alone)
    assert abs(found - 0.5) <= abs(exact - 0.5) + 1e-12
    if n_wrong != n_wrong_other:
        assert (found > 0.5) == (n_wrong < n_wrong_other)
    if both == 0 or neither == 0:  # nothing can be rarer shared than that
        assert found == pytest.approx(exact)


def test_one_repeat_is_judged_by_its_errors_or_else_by_who_won() -> None:
    first, second = np.array([0.05]), np.array([0.08])
    assert better_on_data_set(first, second, np.array([1000.0])) == better_by_counts(80, 50)
    assert better_on_data_set(first, second, UNKNOWN) == 0.75
    assert better_on_data_set(second, first, UNKNOWN) == 0.25
    assert better_on_data_set(first, first, UNKNOWN) == pytest.approx(0.5)
    assert better_on_data_set(first, np.array([inf]), np.array([1000.0])) == 0.75


def test_several_repeats_are_judged_by_their_mean_difference_where_it_can_be_told() -> None:
    rows = np.full(3, 1000.0)
    first, second = np.array([0.05, 0.06, 0.07]), np.array([0.08, 0.07, 0.09])
    assert better_on_data_set(first, second, rows) == better_on_average(first - second)
    # Differences that are all the same, to rounding: Student's t would be certain of three.
    assert better_on_data_set(first, first + 0.01, rows) == better_by_counts(3, 0) == 0.9375
    without = np.array([0.05, inf, inf])
    assert better_on_data_set(without, second, rows) == better_by_counts(1, 2)
    assert better_on_data_set(without, without, rows) == pytest.approx(0.5)


def test_ranks_have_their_known_values() -> None:
    found = pairwise(np.array([[0.10, 0.12, 0.12, 0.15]]), [0])
    assert found.expected_ranks.tolist() == [1, 2.5, 2.5, 4]


def test_expected_ranks_are_those_of_the_papers_tables() -> None:
    # Table 1, support vector regressor: ESMBO, ERS, SMBO, RS.
    frequencies = np.array(
        [[0.50, 0.66, 0.82, 0.86], [0.34, 0.50, 0.50, 0.77], [0.18, 0.50, 0.50, 0.64],
         [0.14, 0.23, 0.36, 0.50]]
    )  # fmt: skip
    np.testing.assert_allclose(expected_ranks(frequencies), [1.66, 2.38, 2.68, 3.27], atol=0.011)


@given(some_losses)
def test_what_one_wins_the_other_loses(losses) -> None:
    found = pairwise(losses, np.arange(len(losses)) // 2)
    one = np.ones(found.win_frequencies.shape)
    np.testing.assert_allclose(found.win_frequencies + found.win_frequencies.T, one)
    np.testing.assert_allclose(found.poisson_binomial + found.poisson_binomial.T, one)
    np.testing.assert_allclose(
        found.on_data_sets + found.on_data_sets.swapaxes(1, 2), np.ones(found.on_data_sets.shape)
    )
    k = losses.shape[1]
    assert found.expected_ranks.sum() == pytest.approx(k * (k + 1) / 2)


@given(some_losses, st.randoms(use_true_random=False))
def test_the_order_of_methods_and_of_repeats_does_not_matter(losses, random) -> None:
    data_sets = np.arange(len(losses)) // 2
    methods, repeats = list(range(losses.shape[1])), list(range(len(losses)))
    random.shuffle(methods)
    random.shuffle(repeats)
    found = pairwise(losses, data_sets)
    moved = pairwise(losses[repeats][:, methods], data_sets[repeats])
    np.testing.assert_allclose(moved.expected_ranks, found.expected_ranks[methods])
    square = np.ix_(methods, methods)
    for name in ("win_frequencies", "n_won", "sign_test", "poisson_binomial"):
        np.testing.assert_allclose(getattr(moved, name), getattr(found, name)[square])
    np.testing.assert_allclose(moved.on_data_sets, found.on_data_sets[:, methods][:, :, methods])


@given(some_losses)
def test_with_one_repeat_each_it_is_the_paper_pair_by_pair(losses) -> None:
    n, k = losses.shape
    found = pairwise(losses, range(n))
    np.testing.assert_allclose(found.expected_ranks, rankdata(losses, axis=1).mean(axis=0))
    for a, b in product(range(k), repeat=2):
        won, lost = (losses[:, a] < losses[:, b]).sum(), (losses[:, a] > losses[:, b]).sum()
        assert found.win_frequencies[a, b] == pytest.approx((won + (n - won - lost) / 2) / n)
        assert found.n_won[a, b] == won
        assert found.sign_test[a, b] == sign_test(won, lost)
        on_data_sets = 0.25 + wins(losses)[:, a, b] / 2
        assert found.on_data_sets[:, a, b] == pytest.approx(on_data_sets)
        most = better_in_most(found.on_data_sets[:, a, b])
        assert found.poisson_binomial[a, b] == pytest.approx(most)


def test_a_data_set_counts_once_however_many_repeats_it_has() -> None:
    losses = np.array([[1.0, 2.0]] * 6 + [[1.0, 2.0], [2.0, 1.5], [3.0, 2.0]])
    found = pairwise(losses, [0] * 6 + [1] * 3)
    assert found.win_frequencies[0, 1] == pytest.approx((1 + 1 / 3) / 2)
    assert (found.n_won[0, 1], found.n_won[1, 0]) == (1, 1)
    assert found.sign_test[0, 1] == 0.75
    assert found.on_data_sets.shape == (2, 2, 2)
    assert found.on_data_sets[0, 0, 1] == better_by_counts(6, 0)
    assert found.on_data_sets[1, 0, 1] == better_on_average(losses[6:, 0] - losses[6:, 1])


def test_of_one_data_set_its_repeats_are_the_signs() -> None:
    losses = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 1.0], [2.0, 1.5], [1.0, 2.0]])
    found = pairwise(losses, [7] * 5)
    assert (found.n_won[0, 1], found.n_won[1, 0]) == (3, 1)
    assert found.sign_test[0, 1] == sign_test(3, 1)
    assert found.win_frequencies[0, 1] == 0.7
    p = found.on_data_sets[0, 0, 1]
    assert found.poisson_binomial[0, 1] == pytest.approx(0.75 * p + 0.25 * (1 - p))


def test_a_win_is_a_lesser_loss_and_a_tie_half_of_one() -> None:
    found = wins(np.array([[1.0, 2.0, 2.0, inf]]))[0]
    assert found.tolist() == [[0.5, 1, 1, 1], [0, 0.5, 0.5, 1], [0, 0.5, 0.5, 1], [0, 0, 0, 0.5]]


@pytest.mark.parametrize("n_data_sets", [8, 22])
def test_of_methods_that_are_alike_few_are_called_better(n_data_sets) -> None:
    rng = np.random.default_rng(0)
    found = [
        pairwise(rng.normal(size=(3 * n_data_sets, 2)), np.arange(3 * n_data_sets) // 3)
        for _ in range(200)
    ]
    assert sum(f.sign_test[0, 1] <= 0.05 for f in found) <= 20  # at most 5 % are expected
    assert sum(f.poisson_binomial[0, 1] > 0.8 for f in found) <= 20
