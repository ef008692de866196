"""Equal losses: those that differ by no more than rounding."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_least"]

_ROUNDINGS = 8 * np.finfo(np.float64).eps


def is_least(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which losses are the least along the first axis, ties included, of the same shape.

    Two are equal if they differ by no more than a typical one, the median, is rounded by.

    Args:
        losses: Of n models, shape (n,) or (n, N), in any unit.
    """
    rounding = _ROUNDINGS * np.median(np.abs(losses), axis=0)
    least: NDArray[np.bool_] = losses <= losses.min(axis=0) + rounding
    return least
