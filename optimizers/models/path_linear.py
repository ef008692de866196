"""Linear models: ridge regression on one-hot paths, and Bayesian linear regression.

`PathLinear` is the model of FLASH (Zhang et al. 2016, section 3.3). Let P be the paths, shape (n,
N), and alpha the ridge penalty. The coefficients beta minimize the sum of squared residuals plus
alpha ||beta||^2, with a free intercept. The predictive variance of a path p is s2 (1 + p'A p),
where A = (P'P + alpha I)^-1 is not centered and s2 is the variance of the residuals. The paper's
eq. 1, with alpha = n lambda, has no intercept (`has_intercept=False`), so unseen algorithms add 0
to the loss.

In `LinearRegression`, weights and noise have a normal-inverse-gamma prior (Bishop 2006, "Pattern
Recognition and Machine Learning", section 3.3 and exercise 3.12). Adding an observation takes
constant time, and the prior may be changed later.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from prefect_tune.optimizers.models.log_posterior import LEAST_VARIANCE
from prefect_tune.optimizers.space.vectors import ROUNDING, Array

RIDGE = 0.1
"""Variance of the noise in linear models of paths: relative to the prior variance of an effect in
FLASH, and to the variance of the losses in ADMM."""


@dataclass(frozen=True)
class PathLinear:
    """A fitted model, constructed by `fit`.

    Attributes:
        coefficients: Coefficients beta, one per column of the paths, shape (N,).
        intercept: Intercept c; 0 for a model without an intercept.
        inverse: Matrix A = (P'P + alpha I)^-1, shape (N, N).
        residual_variance: Residual variance s2, with a positive lower bound so that exploration
            continues if all targets are equal.
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
        """Return the model fitted to one-hot paths and their targets.

        Args:
            paths: One-hot paths, shape (n, N), with n at least 1.
            targets: Targets, shape (n,).
            ridge: Ridge penalty alpha.
            has_intercept: Whether the model has a free intercept.
            weights: Weights of the rows, shape (n,). A row of weight w counts as w equal rows.
        """
        weights = np.ones(len(targets)) if weights is None else weights
        root = np.sqrt(weights)[:, None]
        identity = ridge * np.eye(paths.shape[1])
        offset = has_intercept * np.average(paths, axis=0, weights=weights)
        level = has_intercept * float(np.average(targets, weights=weights))
        centered, scaled = root * (paths - offset), root * paths
        residuals = root[:, 0] * (targets - level)
        beta = np.linalg.solve(centered.T @ centered + identity, centered.T @ residuals)
        intercept = level - float(offset @ beta)
        errors = intercept + paths @ beta - targets
        variance = float(np.cov(errors, bias=True, aweights=weights))
        is_flat = np.allclose(targets, targets[0], ROUNDING, 0)
        span = float(abs(targets[0]) if is_flat else np.ptp(targets)) or 1.0
        inverse = np.linalg.inv(scaled.T @ scaled + identity)
        return cls(beta, intercept, inverse, max(variance, LEAST_VARIANCE * span**2))

    def mean(self, paths: Array) -> Array:
        """Return the predicted means mu(p) = c + p'beta, shape (n,)."""
        return self.intercept + paths @ self.coefficients

    def leverage(self, paths: Array) -> Array:
        """Return q(p) = p'A p, shape (n,), the uncertainty of a path.

        More runs never increase q.
        """
        return np.einsum("ij,ij->i", paths @ self.inverse, paths)

    def deviation(self, paths: Array) -> Array:
        """Return the standard deviations sigma(p) = sqrt(s2 (1 + q(p))), shape (n,)."""
        return np.sqrt(self.residual_variance * (1 + self.leverage(paths)))

    def imagining(self, path: Array) -> Self:
        """Return the model as if `path`, shape (N,), had its predicted mean as target.

        The coefficients and the intercept stay the same, so a rank-one update of A is exact. The
        residual variance is not updated.
        """
        direction = self.inverse @ path
        step = np.outer(direction, direction) / (1 + path @ direction)
        return replace(self, inverse=self.inverse - step)


class LinearRegression:
    """Sufficient statistics of a linear regression of n targets on d features, for any prior.

    The first feature is 1.
    """

    def __init__(self, d: int) -> None:
        self.n = 0
        self._squares = np.zeros((d, d))
        self._products = np.zeros(d)
        self._sum_of_squares = 0.0

    def add(self, features: Array, target: float) -> None:
        """Add one observation: its features, shape (d,), and its target."""
        self.n += 1
        self._squares += np.outer(features, features)
        self._products += features * target
        self._sum_of_squares += target**2

    def level(self, slopes: Array) -> float:
        """Return the mean of the targets minus the part explained by `slopes`, shape (d - 1,)."""
        return float(self._products[0] - self._squares[0, 1:] @ slopes) / self.n

    def posterior(
        self, mean: Array, deviation: Array, noise: float, weight: float
    ) -> "LinearPosterior":
        """Return the posterior of the weights under a normal-inverse-gamma prior.

        Let V be the prior covariance of the weights divided by the variance of the noise. For
        observations X and y, and with a0 = 1 + w/2 and b0 = w s^2/2 for a noise prior of weight w
        and standard deviation s:

            A = V^-1 + X'X,    m = A^-1 (V^-1 m0 + X'y),    a = a0 + n/2,
            b = b0 + (y'y + m0'V^-1 m0 - m'A m) / 2

        Args:
            mean: Prior means m0 of the weights, shape (d,).
            deviation: Prior standard deviations of the weights, shape (d,).
            noise: Prior standard deviation of the noise.
            weight: Weight of the noise prior, as a number of observations.
        """
        inverse_scale = (noise / deviation) ** 2
        precision = np.diag(inverse_scale) + self._squares
        covariance = np.linalg.inv(precision)
        found = covariance @ (inverse_scale * mean + self._products)
        explained = float(found @ precision @ found)
        before = self._sum_of_squares + float(mean @ (inverse_scale * mean))
        rate = (weight * noise**2 + max(before - explained, 0.0)) / 2
        return LinearPosterior(found, covariance, 1 + (weight + self.n) / 2, rate)


@dataclass(frozen=True)
class LinearPosterior:
    """The posterior of a linear regression, a normal-inverse-gamma distribution.

    Attributes:
        mean: Means of the weights, shape (d,).
        covariance: Covariance of the weights divided by the variance of the noise, shape (d, d).
        shape: Shape a of the inverse gamma distribution of the noise's variance, above 1.
        rate: Rate b of the inverse gamma distribution.
    """

    mean: Array
    covariance: Array
    shape: float
    rate: float

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return means and standard deviations of new targets, shape (m,) each.

        `features` has shape (m, d). A new target has a Student t distribution with 2a degrees of
        freedom and squared scale b/a (1 + x'A^-1 x).
        """
        spread = np.einsum("ij,jk,ik->i", features, self.covariance, features)
        variance = self.rate / (self.shape - 1) * (1 + spread)
        return features @ self.mean, np.sqrt(variance)
