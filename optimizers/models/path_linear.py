"""Linear models: ridge regression on one-hot paths, and Bayesian regression from sums.

`PathLinear` is the model of FLASH (Zhang et al. 2016, section 3.3). With P the paths (n, N) and
alpha the ridge, the coefficients are the centred least squares with penalty alpha ||beta||^2 and a
free intercept. A = (P'P + alpha I)^-1 is not centred, and the predictive variance of a path p is
s2 (1 + p'A p), with s2 the variance of the residuals. The paper's eq. (1) has no intercept, which
gives unseen algorithms a loss of 0: `has_intercept=False`, with alpha = n lambda.

In `LinearRegression`, weights and noise have a normal-inverse-gamma prior (Bishop 2006, "Pattern
Recognition and Machine Learning", section 3.3 and exercise 3.12). Each new observation costs the
same time, and the prior may change afterwards.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from prefect_tune.optimizers.models.log_posterior import LEAST_VARIANCE
from prefect_tune.optimizers.space.vectors import Array

_SMALLEST_SHARE = 1e-3
"""Least deviation of the residuals, as a share of the range of the targets."""


@dataclass(frozen=True)
class PathLinear:
    """A fitted model, made by `fit`.

    Attributes:
        coefficients: beta, one per algorithm, shape (N,).
        intercept: c, 0 without one.
        inverse: A = (P'P + alpha I)^-1, shape (N, N).
        residual_variance: s2, floored so that equal targets leave something to explore.
    """

    coefficients: Array
    intercept: float
    inverse: Array
    residual_variance: float

    @classmethod
    def fit(
        cls,
        paths: Array,
        targets: Array,
        ridge: float = 1.0,
        *,
        has_intercept: bool = True,
        weights: Array | None = None,
    ) -> Self:
        """Fit to one-hot paths, shape (n, N), and their targets, shape (n,), with n at least 1.

        A row of weight w, in `weights`, shape (n,), counts like w equal rows.
        """
        weights = np.ones(len(targets)) if weights is None else weights
        root = np.sqrt(weights)[:, None]
        identity = ridge * np.eye(paths.shape[1])
        offset = np.zeros(paths.shape[1])
        if has_intercept:
            offset = np.average(paths, axis=0, weights=weights)
        level = float(np.average(targets, weights=weights)) if has_intercept else 0.0
        centred, scaled = root * (paths - offset), root * paths
        residuals = root[:, 0] * (targets - level)
        beta = np.linalg.solve(centred.T @ centred + identity, centred.T @ residuals)
        intercept = level - float(offset @ beta)
        errors = intercept + paths @ beta - targets
        spread = (errors - np.average(errors, weights=weights)) ** 2
        variance = float(np.average(spread, weights=weights))
        floor = max(LEAST_VARIANCE, (_SMALLEST_SHARE * float(np.ptp(targets))) ** 2)
        inverse = np.linalg.inv(scaled.T @ scaled + identity)
        return cls(beta, intercept, inverse, max(variance, floor))

    def mean(self, paths: Array) -> Array:
        """mu(p) = c + p'beta, shape (n,)."""
        return self.intercept + paths @ self.coefficients

    def leverage(self, paths: Array) -> Array:
        """q(p) = p'A p, shape (n,): uncertainty of a path, which never rises with more runs."""
        return np.einsum("ij,ij->i", paths @ self.inverse, paths)

    def deviation(self, paths: Array) -> Array:
        """sigma(p) = sqrt(s2 (1 + q(p))), shape (n,)."""
        return np.sqrt(self.residual_variance * (1 + self.leverage(paths)))

    def imagining(self, path: Array) -> Self:
        """Return the model as if `path`, shape (N,), had returned exactly its mean.

        beta and c stay the same, so a rank-one update of A is exact. The residual variance is kept
        while trials are pending.
        """
        direction = self.inverse @ path
        step = np.outer(direction, direction) / (1 + path @ direction)
        return replace(self, inverse=self.inverse - step)


class LinearRegression:
    """Sufficient statistics of n targets that are linear in d features, for any prior."""

    def __init__(self, d: int) -> None:
        self.n = 0
        self._squares = np.zeros((d, d))
        self._products = np.zeros(d)
        self._sum_of_squares = 0.0
        self._sum_of_features = np.zeros(d)
        self._sum = 0.0

    def add(self, features: Array, target: float) -> None:
        """Take one observation: features, shape (d,), and target."""
        self.n += 1
        self._squares += np.outer(features, features)
        self._products += features * target
        self._sum_of_squares += target**2
        self._sum_of_features += features
        self._sum += target

    def level(self, slopes: Array) -> float:
        """Return the mean of the targets less the part explained by slopes, shape (d - 1,)."""
        return (self._sum - float(self._sum_of_features[1:] @ slopes)) / self.n

    def posterior(
        self, mean: Array, deviation: Array, noise: float, weight: float
    ) -> "LinearPosterior":
        """Return the posterior of the weights with a normal-inverse-gamma prior.

        With V the prior's covariance over the noise's variance, for observations X and y:

            A = V^-1 + X'X,    m = A^-1 (V^-1 m0 + X'y),    a = a0 + n/2,
            b = b0 + (y'y + m0'V^-1 m0 - m'A m) / 2

        The weights have prior means and deviations of shape (d,). `noise` is the deviation of
        targets around the line, worth `weight` observations.
        """
        inverse_scale = (noise / deviation) ** 2
        precision = np.diag(inverse_scale) + self._squares
        covariance = np.linalg.inv(precision)
        found = covariance @ (inverse_scale * mean + self._products)
        explained = float(found @ precision @ found)
        before = self._sum_of_squares + float(mean @ (inverse_scale * mean))
        rate = weight * noise**2 + max(before - explained, 0.0) / 2
        return LinearPosterior(found, covariance, weight + self.n / 2, rate)


@dataclass(frozen=True)
class LinearPosterior:
    """Weights of a linear regression: normal-inverse-gamma.

    Attributes:
        mean: Means of the weights, shape (d,).
        covariance: Covariance of the weights over the noise's variance, shape (d, d).
        shape, rate: Parameters of the inverse gamma distribution of the noise's variance; shape >
            1.
    """

    mean: Array
    covariance: Array
    shape: float
    rate: float

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return means and deviations of new targets, shape (m,), at features (m, d).

        New targets have Student's t distribution with 2a degrees of freedom and the squared scale
        b/a (1 + x'A^-1 x).
        """
        spread = np.einsum("ij,jk,ik->i", features, self.covariance, features)
        variance = self.rate / (self.shape - 1) * (1 + spread)
        return features @ self.mean, np.sqrt(variance)
