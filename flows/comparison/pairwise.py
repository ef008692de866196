"""Pairwise statistics of methods: how certain it is that one method is better than another.

The statistics follow Lacoste, Larochelle, Marchand and Laviolette, Sequential model-based ensemble
optimization, UAI 2014, section 6.2. They do not compare losses across data sets. A data set counts
once, however many repeats it has.
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
"""Standard deviation, as a share of the mean, below which differences count as equal."""


@dataclass(frozen=True)
class Pairwise:
    """Statistics of each pair of k methods; entry (a, b) refers to a being better than b.

    Attributes:
        win_frequencies: Mean over data sets of the share of repeats that a wins; a tie is half a
            win. Shape (k, k), 0.5 on the diagonal.
        n_won: Number of data sets (repeats, if there is one data set) that a wins more often than
            b. Shape (k, k).
        sign_test: p of the one-sided sign test on `n_won`, shape (k, k).
        on_data_sets: Probability that a is better on each of the L data sets, shape (L, k, k).
        poisson_binomial: Probability that a is better on most such data sets, shape (k, k).
    """

    win_frequencies: Array
    expected_ranks: Array
    n_won: NDArray[np.int_]
    sign_test: Array
    on_data_sets: Array
    poisson_binomial: Array


def pairwise(losses: Array, data_sets: ArrayLike, n_rows: ArrayLike | None = None) -> Pairwise:
    """Compare each pair of methods over the repeats of one or several data sets.

    The sign test needs independent units and therefore counts data sets; a method wins a data set
    by winning most repeats. With a single data set, the test counts repeats.

    Args:
        losses: Test losses by repeat and method, shape (n, k); inf if missing.
        data_sets: Data set number of each repeat, shape (n,).
        n_rows: Number of test rows of each repeat if the loss is the share of wrong rows, shape
            (n,); None or nan for other losses, or if the number is unknown.
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
    """Return 1 where a method has a lower loss, 0.5 where losses are equal, else 0.

    `losses` has shape (n, k), the result (n, k, k); its second axis is the winning method.
    """
    mine, others = losses[:, :, None], losses[:, None, :]
    return (mine < others) + 0.5 * (mine == others)


def expected_ranks(win_frequencies: Array) -> Array:
    """Return expected ranks: 1 plus the sum of 1 - rho, how often each other method wins.

    The paper defines tied ranks by the last rank of the tie; its tables use this form, where ties
    share the mean rank. rho has shape (k, k), the result (k,) with the sum k (k + 1) / 2.
    """
    lost = 1 - win_frequencies
    return 1 + lost.sum(axis=1) - lost.diagonal()


def sign_test(n_won: int, n_lost: int) -> float:
    """Return P(B >= n_won) for B ~ Binomial(n_won + n_lost, 1/2); 1 without wins or losses.

    The caller excludes ties. The paper calls p < 0.1 significant, and p < 0.05 highly significant.
    """
    n = int(n_won) + int(n_lost)
    return float(binomtest(int(n_won), n, alternative="greater").pvalue) if n else 1.0


def poisson_binomial(probabilities: Iterable[float]) -> Array:
    """Return P(K = 0), ..., P(K = L), shape (L + 1,), for the wins K in L independent trials."""
    return reduce(np.convolve, ([1 - p, p] for p in probabilities), np.ones(1))


def better_in_most(probabilities: ArrayLike) -> float:
    """Return the probability that a method is better on more than half of such data sets.

    `probabilities`, shape (L,), are the chances to be better on each data set. In the paper's
    Poisson-binomial test, K wins give the share won of all such data sets the posterior Beta(K + 1,
    L - K + 1). The result is its mass above one half, at most 0.75 for one data set. The paper
    calls 0.8 significant, and 0.9 highly significant.
    """
    number = poisson_binomial(np.asarray(probabilities, dtype=np.float64))
    n = len(number) - 1
    k = np.arange(n + 1)
    return float(number @ beta.sf(0.5, k + 1, n - k + 1))


def better_on_data_set(first: Array, second: Array, n_rows: Array) -> float:
    """Return the probability that the first of two methods is better on a data set.

    With several repeats, compare mean differences (`better_on_average`). With one repeat and shares
    of wrong rows, compare error counts as in the paper (`better_by_errors`); the result then
    concerns the two fitted models, not other seeds. For other losses, or if differences are
    constant or infinite, count the repeats won (`better_by_counts`). The winner of a single repeat
    then gets 3/4.

    Args:
        first: Test losses of the first method, shape (n,); inf if missing.
        second: Test losses of the second method in the same repeats, shape (n,).
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
    """Return the probability that the mean of differences is below 0 (Student's t, n - 1 degrees).

    This is the posterior of a normal mean under flat priors on the mean and the log standard
    deviation. Repeats that share training rows make it somewhat overconfident. `differences` has
    shape (n,), n > 1, not all equal.
    """
    n = len(differences)
    return float(t.sf(differences.mean() / (differences.std(ddof=1) / np.sqrt(n)), n - 1))


def better_by_errors(n_wrong: float, n_wrong_other: float, n_rows: float) -> float:
    """Return the probability that one model errs less often than another, by wrong test rows.

    The paper counts the rows that only one model gets wrong; losses give only the difference. The
    largest possible counts are assumed, so the result is never overconfident.
    """
    n_shared = max(0.0, n_wrong + n_wrong_other - n_rows)
    return better_by_counts(n_wrong_other - n_shared, n_wrong - n_shared)


def better_by_counts(n_won: float, n_lost: float) -> float:
    """Return the probability that a method wins most such cases, P(Beta(1 + w, 1 + l) > 1/2)."""
    return float(beta.sf(0.5, 1 + n_won, 1 + n_lost))
