"""Expected improvement of a positive loss whose logarithm is predicted."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_ndtr, ndtr

__all__ = ["log_normal_improvement"]


def log_normal_improvement(
    mean: ArrayLike, deviation: ArrayLike, best: float
) -> NDArray[np.float64]:
    """Return ln E[max(0, exp(best) - exp(Y))] of Y ~ N(mean, deviation^2), shape (n,).

    Hutter et al. 2009 ("SPO and beyond", eq. 2): with v = (best - mean) / deviation it is

        exp(best) Phi(v) - exp(mean + deviation^2 / 2) Phi(v - deviation)
        = exp(best) phi(v) (M(v) - M(v - deviation)),  M = Phi / phi,

    of which the first is used above v = 1 and the second below, where the first is a difference of
    numbers that are all but equal, or 0.

    Args:
        mean: Predicted logarithms, shape (n,).
        deviation: Their standard deviations, all positive, shape (n,).
        best: Logarithm of the smallest loss observed.
    """
    mean, deviation = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    v = (best - mean) / deviation
    # Each branch is evaluated only on arguments where it is defined.
    high, low = np.maximum(v, 1.0), np.minimum(v, 1.0)
    kept = log_ndtr(high - deviation) + deviation * (deviation / 2 - high)
    above = np.log(ndtr(high) - np.exp(kept))
    ratio = erfcx(-low / np.sqrt(2)) - erfcx((deviation - low) / np.sqrt(2))
    below = -(low**2) / 2 + np.log(np.maximum(ratio, 1e-300) / 2)
    improvement: NDArray[np.float64] = best + np.where(v > 1, above, below)
    return improvement
