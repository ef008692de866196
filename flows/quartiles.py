"""Quartiles of losses, of which a missing one is worse than all others."""

from math import isfinite

import numpy as np
from numpy.typing import NDArray

__all__ = ["finite", "quartiles"]


def quartiles(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return lower quartile, median and upper quartile over the first axis, shape (3, ...).

    Args:
        losses: Shape (n, ...); inf where there is none. A quartile between it and a loss is inf or
            nan: no number.
    """
    with np.errstate(invalid="ignore"):  # between inf and inf
        found: NDArray[np.float64] = np.quantile(losses, (0.25, 0.5, 0.75), axis=0)
    return found


def finite(value: float) -> float | None:
    """Return a number, None for inf and nan."""
    return float(value) if isfinite(value) else None
