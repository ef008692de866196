"""Ridge regression on one-hot paths: the linear model of FLASH (Zhang et al. 2016, section 3.3).

With P the paths (n, N), m the targets and alpha the ridge: the coefficients are those of the
centred least squares with penalty alpha ||beta||^2 and a free intercept, A = (P'P + alpha I)^-1 is
not centred, and the predictive variance of a path p is s2 (1 + p'A p), where s2 is the variance of
the residuals. The paper's eq. (1) has no intercept, which gives an algorithm that was never seen a
loss of 0; `has_intercept=False` has it so, with alpha = n lambda.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_SMALLEST_VARIANCE = 1e-8
_SMALLEST_SHARE = 1e-3
"""Least deviation of the residuals, as a share of the range of the targets."""

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class PathLinear:
    """A fitted model; `fit` makes it.

    Attributes:
        coefficients: beta, one per algorithm, shape (N,).
        intercept: c, 0 without one.
        inverse: A = (P'P + alpha I)^-1, shape (N, N).
        residual_variance: s2, floored so that equal targets still leave something to explore.
    """

    coefficients: Array
    intercept: float
    inverse: Array
    residual_variance: float

    @classmethod
    def fit(
        cls, paths: Array, targets: Array, ridge: float = 1.0, *, has_intercept: bool = True
    ) -> Self:
        """Fit to one-hot paths, shape (n, N), and their targets, shape (n,), with n at least 1."""
        identity = ridge * np.eye(paths.shape[1])
        offset = paths.mean(axis=0) if has_intercept else np.zeros(paths.shape[1])
        level = float(targets.mean()) if has_intercept else 0.0
        centred = paths - offset
        beta = np.linalg.solve(centred.T @ centred + identity, centred.T @ (targets - level))
        intercept = level - float(offset @ beta)
        variance = float(np.var(intercept + paths @ beta - targets))
        floor = max(_SMALLEST_VARIANCE, (_SMALLEST_SHARE * float(np.ptp(targets))) ** 2)
        inverse = np.linalg.inv(paths.T @ paths + identity)
        return cls(beta, intercept, inverse, max(variance, floor))

    def mean(self, paths: Array) -> Array:
        """mu(p) = c + p'beta, shape (n,)."""
        return self.intercept + paths @ self.coefficients

    def leverage(self, paths: Array) -> Array:
        """q(p) = p'A p, shape (n,): how little is known of a path; never rises with more runs."""
        return np.einsum("ij,ij->i", paths @ self.inverse, paths)

    def deviation(self, paths: Array) -> Array:
        """sigma(p) = sqrt(s2 (1 + q(p))), shape (n,)."""
        return np.sqrt(self.residual_variance * (1 + self.leverage(paths)))

    def imagining(self, path: Array) -> Self:
        """Return the model had `path`, shape (N,), returned exactly its mean.

        Neither beta nor c moves then, so a rank-one update of A is exact. The residual variance is
        kept while trials are pending.
        """
        direction = self.inverse @ path
        step = np.outer(direction, direction) / (1 + path @ direction)
        return replace(self, inverse=self.inverse - step)


def guarded_log_seconds(seconds: Array) -> Array:
    """Return ln(e + seconds), shape (n,): `>= 1`, and near ln(seconds) where they are many.

    The paper's ln(seconds) is negative below one second, which turns the sign of EI per second.
    """
    return np.log(np.e + seconds)
