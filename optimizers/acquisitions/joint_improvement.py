"""Joint expected improvement of candidates that are chosen one after the other, none observed.

Wilson et al. 2018, with the last candidate integrated exactly: for each drawn outcome of those
chosen before, the improvement that one more brings has a closed form. It is the q-EI of BAPI
(Belakaria et al. 2022, algorithm 4, line 3), which samples all of them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import qmc

Array = NDArray[np.floating[Any]]

_JITTER = 1e-8
_LEAST_VARIANCE = 1e-10


def sobol_normals(n: int, d: int, rng: np.random.Generator) -> Array:
    """Return scrambled Sobol points of d normals, shape (n, d); n is a power of two."""
    points = qmc.Sobol(d, rng=rng).random(n)
    return ndtri(np.clip(points, 1e-9, 1 - 1e-9))


class JointImprovement:
    """The expected improvement that one more candidate adds to those chosen so far.

    Scores are the higher the better.

    Args:
        mean: Of the candidates, shape (m,).
        variance: Likewise.
        covariance: From a candidate's number to its covariances with all, shape (m,).
        best: Score that is to be improved on.
        normals: Standard normals, shape (draws, most that are chosen).
    """

    def __init__(
        self,
        mean: Array,
        variance: Array,
        covariance: Callable[[int], Array],
        best: float,
        normals: Array,
    ) -> None:
        self._mean, self._variance, self._covariance = mean, variance.copy(), covariance
        self._normals = normals
        self._shift = np.zeros((len(normals), len(mean)))
        self._best = np.full(len(normals), best)
        self._rows: list[Array] = []

    def gains(self) -> Array:
        """Return the mean increment that each candidate adds, shape (m,)."""
        deviation = np.sqrt(np.maximum(self._variance, _LEAST_VARIANCE))
        n = len(self._normals) if self._rows else 1  # before anything is chosen all draws agree
        u = (self._mean + self._shift[:n] - self._best[:n, None]) / deviation
        density = np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi)
        return (deviation * (u * ndtr(u) + density)).mean(axis=0)

    @property
    def variance(self) -> Array:
        """Variance of each candidate once those chosen are known, shape (m,)."""
        return self._variance

    def covariance(self, number: int) -> Array:
        """Return covariances of a candidate with all once those chosen are known, shape (m,)."""
        column = self._covariance(number).astype(np.float64)
        for row in self._rows:
            column = column - row * row[number]
        return column

    def choose(self, number: int) -> None:
        """Choose a candidate: from now on gains are what others add to it."""
        column = self.covariance(number)
        row = column / np.sqrt(max(column[number], 0.0) + _JITTER)
        z = self._normals[:, len(self._rows)]
        self._rows.append(row)
        self._shift += np.outer(z, row)
        self._variance = self._variance - row**2
        self._best = np.maximum(self._best, self._mean[number] + self._shift[:, number])
