"""How sure it is that one method is better than another: statistics of each pair of methods.

They are those of Lacoste, Larochelle, Marchand and Laviolette, Sequential model-based ensemble
optimization, UAI 2014, section 6.2, which need no losses that can be compared across data sets.
A data set counts once, however many repeats it has.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binomtest, t

Array = NDArray[np.float64]
_NO_SPREAD = 1e-9
"""Standard deviation, as a share of the mean, below which differences count as all the same."""


@dataclass(frozen=True)
class Pairwise:
    """Statistics of each pair of k methods; row a and column b speak of a being better than b.

    Attributes:
        win_frequencies: Share of the data sets, of each the share of its repeats, that a wins; a
            tie is half a win. Shape (k, k), 0.5 on the diagonal.
        expected_ranks: Shape (k,).
        n_won: Of the data sets (of the repeats where there is one data set), how many a wins more
            often than b. Shape (k, k).
        sign_test: p of the one-sided sign test over the same, shape (k, k).
        on_data_sets: Probability that a is better on each of the L data sets, by number, shape
            (L, k, k).
        poisson_binomial: Probability that a is better on more than half of such data sets, shape
            (k, k).
    """

    win_frequencies: Array
    expected_ranks: Array
    n_won: NDArray[np.int_]
    sign_test: Array
    on_data_sets: Array
    poisson_binomial: Array


def pairwise(losses: Array, data_sets: ArrayLike, n_rows: ArrayLike | None = None) -> Pairwise:
    """Compare each pair of methods over the repeats of one data set or of several.

    The sign test wants units that are independent, so it is over data sets, of which a method wins
    those where it wins most repeats. Only if there is a single one it is over the repeats.

    Args:
        losses: Test losses by repeat and method, shape (n, k); inf where there is none.
        data_sets: Number of the data set that a repeat is of, shape (n,).
        n_rows: Test rows of a repeat whose loss is the share of wrong rows, shape (n,); nan or None
            for other losses, and where it is not known.
    """
    numbers = np.asarray(data_sets)
    rows = np.full(len(losses), np.nan) if n_rows is None else np.asarray(n_rows, dtype=np.float64)
    members = [numbers == number for number in np.unique(numbers)]
    won = wins(losses)
    by_data_set = np.array([won[is_in].mean(axis=0) for is_in in members])
    frequencies = by_data_set.mean(axis=0)
    n_won = ((by_data_set if len(members) > 1 else won) > 0.5).sum(axis=0)
    on_data_sets = np.full(by_data_set.shape, 0.5)
    signs, most = np.ones(frequencies.shape), np.full(frequencies.shape, 0.5)
    for a, b in combinations(range(losses.shape[1]), 2):
        for position, is_in in enumerate(members):
            p = better_on_data_set(losses[is_in, a], losses[is_in, b], rows[is_in])
            on_data_sets[position, [a, b], [b, a]] = p, 1 - p
        p = better_in_most(on_data_sets[:, a, b])
        most[[a, b], [b, a]] = p, 1 - p
        signs[a, b] = sign_test(n_won[a, b], n_won[b, a])
        signs[b, a] = sign_test(n_won[b, a], n_won[a, b])
    return Pairwise(frequencies, expected_ranks(frequencies), n_won, signs, on_data_sets, most)


def wins(losses: Array) -> Array:
    """Return 1 where a method has a lesser loss than another, 0.5 where they are equal, or 0.

    Args:
        losses: Shape (n, k).

    Returns:
        Shape (n, k, k); the second axis has the method that wins.
    """
    mine, others = losses[:, :, None], losses[:, None, :]
    return (mine < others) + 0.5 * (mine == others)


def expected_ranks(win_frequencies: Array) -> Array:
    """Return 1 plus the sum, over all others, of how often they win, 1 - rho.

    The paper's definition of a rank gives all that are equal the last of their ranks; its tables
    have this form, where they share the mean of them.

    Args:
        win_frequencies: Rho, shape (k, k).

    Returns:
        Shape (k,), with the sum k (k + 1) / 2.
    """
    lost = 1 - win_frequencies
    return 1 + lost.sum(axis=1) - lost.diagonal()


def sign_test(n_won: int, n_lost: int) -> float:
    """Return how likely a method that is no better wins so often; ties are left out before.

    The paper calls p < 0.1 significant, and p < 0.05 highly significant.

    Returns:
        P(B >= n_won), B of the binomial distribution of n_won + n_lost and 1/2; 1 for none.
    """
    n = int(n_won) + int(n_lost)
    return float(binomtest(int(n_won), n, alternative="greater").pvalue) if n else 1.0


def poisson_binomial(probabilities: Iterable[float]) -> Array:
    """Return the distribution of the number of wins in L independent trials.

    Args:
        probabilities: Of a win in each trial, shape (L,).

    Returns:
        P(K = 0), ..., P(K = L), shape (L + 1,).
    """
    return reduce(np.convolve, ([1 - p, p] for p in probabilities), np.ones(1))


def better_in_most(probabilities: ArrayLike) -> float:
    """Return how likely a method is better on more than half of such data sets.

    This is the paper's Poisson-binomial test: K, the number of data sets on which it is better, has
    the Poisson-binomial distribution. For each K, the posterior of rho, the share of all such data
    sets on which it is better, is Beta(K + 1, L - K + 1); returned is its mass above one half. With
    one data set that is at most 0.75. The paper calls a probability above 0.8 significant, and one
    above 0.9 highly significant.

    Args:
        probabilities: That it is better on each of the L data sets, shape (L,).
    """
    number = poisson_binomial(np.asarray(probabilities, dtype=np.float64))
    n = len(number) - 1
    k = np.arange(n + 1)
    return float(number @ beta.sf(0.5, k + 1, n - k + 1))


def better_on_data_set(first: Array, second: Array, n_rows: Array) -> float:
    """Return how likely the first of two methods is better on a data set.

    Several repeats tell by the mean of their differences (`better_on_average`). Of one repeat,
    shares of wrong rows are judged by their numbers (`better_by_errors`), as in the paper: it is
    about the two fitted models, since whether another seed had turned it round only repeats tell.
    Of any other loss one repeat says no more than who won, and differences that are all the same,
    or of which some are infinite, are no sample of normal ones: then the repeats won are counted
    (`better_by_counts`), which gives 3/4 to the winner of one.

    Args:
        first: Its test losses, shape (n,); inf where there is none.
        second: Those of the other method in the same repeats, shape (n,).
        n_rows: Test rows of repeats whose losses are shares of wrong rows, shape (n,); else nan.
    """
    are_finite = bool(np.isfinite(first).all() and np.isfinite(second).all())
    if are_finite and len(first) == 1 and np.isfinite(n_rows[0]):
        wrong = np.rint(np.array([first[0], second[0]]) * n_rows[0])
        return better_by_errors(wrong[0], wrong[1], n_rows[0])
    if are_finite and len(first) > 1:
        differences = first - second
        if differences.std() > _NO_SPREAD * np.abs(differences.mean()):
            return better_on_average(differences)
    n_ties = (first == second).sum()
    return better_by_counts(
        (first < second).sum() + n_ties / 2, (first > second).sum() + n_ties / 2
    )


def better_on_average(differences: Array) -> float:
    """Return how likely the mean of differences is below 0, by Student's t with n - 1 degrees.

    That is the posterior of the mean of normal differences whose mean and log standard deviation
    have flat priors. Repeats that share training rows are not quite independent, so that it is
    somewhat too sure of what other draws of rows would show.

    Args:
        differences: Losses minus those of another method in the same repeats, shape (n,), n > 1,
            not all equal.
    """
    n = len(differences)
    return float(t.sf(differences.mean() / (differences.std(ddof=1) / np.sqrt(n)), n - 1))


def better_by_errors(n_wrong: float, n_wrong_other: float, n_rows: float) -> float:
    """Return how likely a model errs less often than another one, from their numbers of errors.

    The paper compares the rows that one of them alone gets wrong. Losses do not say how many these
    are, only how many more one has; the more there are, the less that proves. So as many are
    assumed as there can be, and the probability is never more certain than that of the true number.

    Args:
        n_wrong: Of its test rows.
        n_wrong_other: Of the same rows, wrong under the other model.
        n_rows: How many test rows there are.
    """
    n_shared = max(0.0, n_wrong + n_wrong_other - n_rows)
    return better_by_counts(n_wrong_other - n_shared, n_wrong - n_shared)


def better_by_counts(n_won: float, n_lost: float) -> float:
    """Return how likely a method wins more than half of such cases; P(Beta(1 + w, 1 + l) > 1/2).

    Args:
        n_won: Cases that it has won, for instance rows that the other one alone gets wrong.
        n_lost: Cases that the other one has won.
    """
    return float(beta.sf(0.5, 1 + n_won, 1 + n_lost))
