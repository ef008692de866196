"""Bayesian linear regression with a conjugate prior, from sums over the observations.

Weights and noise have a normal-inverse-gamma prior (Bishop 2006, "Pattern Recognition and Machine
Learning", section 3.3 and exercise 3.12). An observation costs the same however many there were,
and the prior may change after them.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class LinearPrior:
    """Normal-inverse-gamma prior of a linear regression with d features.

    Attributes:
        mean: Means of the weights, shape (d,).
        deviation: Deviations of the weights, shape (d,).
        noise: Deviation of the targets around the line.
        weight: Observations that `noise` stands for.
    """

    mean: Array
    deviation: Array
    noise: float
    weight: float


class LinearRegression:
    """Sufficient statistics of targets that are linear in d features; the prior comes with asking.

    Args:
        d: Number of features.

    Attributes:
        n: Observations so far.
    """

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
        """Return the mean of the targets less what slopes explain.

        Args:
            slopes: Weights of the features after the first, which is 1; shape (d - 1,).
        """
        return (self._sum - float(self._sum_of_features[1:] @ slopes)) / self.n

    def posterior(self, prior: LinearPrior) -> "LinearPosterior":
        """Return what is known of the weights with a prior.

        With V the prior's covariance over the noise's variance, for observations X and y:

            A = V^-1 + X'X,    m = A^-1 (V^-1 m0 + X'y),    a = a0 + n/2,
            b = b0 + (y'y + m0'V^-1 m0 - m'A m) / 2
        """
        inverse_scale = (prior.noise / prior.deviation) ** 2
        precision = np.diag(inverse_scale) + self._squares
        right = inverse_scale * prior.mean + self._products
        covariance = np.linalg.inv(precision)
        mean = covariance @ right
        shape = prior.weight + self.n / 2
        explained = float(mean @ precision @ mean)
        before = self._sum_of_squares + float(prior.mean @ (inverse_scale * prior.mean))
        rate = prior.weight * prior.noise**2 + max(before - explained, 0.0) / 2
        return LinearPosterior(mean, covariance, shape, rate)


@dataclass(frozen=True)
class LinearPosterior:
    """Weights of a linear regression: normal-inverse-gamma.

    Attributes:
        mean: Their means, shape (d,).
        covariance: Their covariance over the noise's variance, shape (d, d).
        shape: Shape of the inverse gamma distribution of the noise's variance, `> 1`.
        rate: Its rate.
    """

    mean: Array
    covariance: Array
    shape: float
    rate: float

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Return means and standard deviations of new targets, shape (m,), at features (m, d).

        A new target has Student's t distribution with 2a degrees of freedom and the squared scale
        b/a (1 + x'A^-1 x).
        """
        spread = np.einsum("ij,jk,ik->i", features, self.covariance, features)
        variance = self.rate / (self.shape - 1) * (1 + spread)
        return features @ self.mean, np.sqrt(variance)
