"""The variance of observations around the function, a part of its own of a Gaussian process."""

from abc import ABC, abstractmethod

import numpy as np

from prefect_tune.optimizers.surrogates.kernel import Array, Parameter, Pullback

NOISE = Parameter(
    "noise variance",
    start=float(np.log(1e-2)),
    lower=float(np.log(1e-6)),
    upper=0.0,
    prior=(float(np.log(1e-2)), 2.0),
)
"""Ln of the noise variance as a share of a target's variance."""
_OF_NONE = Parameter(
    "noise variance of the smallest subset",
    start=float(np.log(1e-2)),
    lower=float(np.log(1e-6)),
    upper=float(np.log(4.0)),
    prior=(float(np.log(1e-2)), 2.0),
)
_FLOOR = 1e-9


class Noise(ABC):
    """sigma^2 of each row of inputs, shape (n, d), as a share of a target's variance."""

    parameters: tuple[Parameter, ...]

    @abstractmethod
    def variance(self, theta: Array, inputs: Array) -> Array:
        """Return sigma^2 of each row, shape (n,)."""

    @abstractmethod
    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """Return sigma^2 and a function of weights w, (n,), to sum_i w_i dsigma_i^2 / dtheta."""


class ConstantNoise(Noise):
    """The same variance everywhere.

    Args:
        parameter: Its ln.
    """

    def __init__(self, parameter: Parameter = NOISE) -> None:
        self.parameters = (parameter,)

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Noise.variance`."""
        return np.full(len(inputs), np.exp(theta[0]))

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Noise.pullback`."""
        value = np.exp(theta[0])
        return self.variance(theta, inputs), lambda weights: np.array([value * weights.sum()])


class FallingNoise(Noise):
    """sigma_0^2 + sigma_1^2 (1 - s)^2: losses of small subsets scatter more.

    Args:
        column: Column of the inputs that holds s.
        parameters: Ln of sigma_0^2 and of sigma_1^2.
    """

    def __init__(
        self, column: int, parameters: tuple[Parameter, Parameter] = (NOISE, _OF_NONE)
    ) -> None:
        self.column = column
        self.parameters = parameters

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Noise.variance`."""
        everywhere, small = np.exp(theta)
        return everywhere + small * (1 - inputs[:, self.column]) ** 2 + _FLOOR

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Noise.pullback`."""
        everywhere, small = np.exp(theta)
        fall = (1 - inputs[:, self.column]) ** 2
        return self.variance(theta, inputs), lambda weights: np.array(
            [everywhere * weights.sum(), small * (weights @ fall)]
        )
