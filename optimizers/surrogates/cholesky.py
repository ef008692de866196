"""Factors of covariance matrices, and systems solved with them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dtrtrs

__all__ = ["cholesky", "solve_triangular"]

Array = NDArray[np.floating[Any]]

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)


def cholesky(K: Array, diagonal: float | Array) -> Array:
    """Return L of K + diagonal, with the least jitter that works; zeros above its diagonal.

    Args:
        K: Shape (n, n).
        diagonal: A number, or one for each row.

    Raises:
        ValueError: If none does.
    """
    typical = float(np.mean(np.diag(K) + diagonal))
    for jitter in _JITTERS:
        shifted = np.array(K, order="F")
        shifted[np.diag_indices_from(shifted)] += diagonal + jitter * typical
        L, info = dpotrf(shifted, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            factor: Array = L
            return factor
    raise ValueError(
        f"a covariance matrix of {len(K)} rows is not positive definite with jitter "
        f"{_JITTERS[-1]:g} of its diagonal"
    )


def solve_triangular(L: Array, sides: Array, *, transposed: bool = False) -> Array:
    """Return L^-1 or L^-T times the sides, shape (n, m)."""
    solution, _ = dtrtrs(L, sides, lower=1, trans=int(transposed))
    solved: Array = solution
    return solved
