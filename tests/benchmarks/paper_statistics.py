"""Statistics of pairs of methods: Lacoste, Larochelle, Marchand and Laviolette, UAI 2014, 6.2."""

from collections.abc import Iterable
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta, binomtest, t

Array = NDArray[np.float64]


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


def better_on_average(differences: Array) -> float:
    """Return the probability that the mean of differences is below 0 (Student's t, n - 1 degrees).

    This is the posterior of a normal mean under flat priors on the mean and the log standard
    deviation. Repeats that share training rows make it somewhat overconfident. `differences` has
    shape (n,), n > 1, not all equal.
    """
    n = len(differences)
    return float(t.sf(differences.mean() / (differences.std(ddof=1) / np.sqrt(n)), n - 1))


def better_by_counts(n_won: float, n_lost: float) -> float:
    """Return the probability that a method wins most such cases, P(Beta(1 + w, 1 + l) > 1/2)."""
    return float(beta.sf(0.5, 1 + n_won, 1 + n_lost))
