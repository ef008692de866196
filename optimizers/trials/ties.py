"""Equal losses: those that differ by no more than rounding."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_least", "rounding_of"]

_ROUNDING = 1e-12
"""Of a sum over any number of rows, as a share."""


def is_least(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which losses are the least along the first axis, ties included, of the same shape.

    Args:
        losses: Of n models, shape (n,) or (n, N), in any unit.
    """
    least: NDArray[np.bool_] = losses <= losses.min(axis=0) + rounding_of(losses)
    return least


def rounding_of(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return by how much losses may differ and be equal: the rounding of a typical one, the median.

    Args:
        losses: Of n models, shape (n,) or (n, N), in any unit.

    Returns:
        Shape () or (N,).
    """
    rounding: NDArray[np.float64] = np.asarray(_ROUNDING * np.median(np.abs(losses), axis=0))
    return rounding
