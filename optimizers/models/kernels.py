"""Covariance functions that add, multiply and nest, with the gradients that fitting needs.

Parameters are one vector `theta` on an unbounded scale: logarithms of lengthscales and variances,
logits of correlations. Gradients are pulled back: a kernel takes weights W of its entries and
returns sum_ij W_ij dk_ij/dtheta, so that no (n, n, p) array is made. Stationary kernels depend on
the scaled distance between inputs, conditional ones on choices.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers.space.vectors import Array

Pullback = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One entry of theta, on the scale of its search.

    Attributes:
        prior: Mean and deviation of a normal prior.
    """

    name: str
    start: float
    lower: float
    upper: float
    prior: tuple[float, float]

    @classmethod
    def of_log(
        cls, name: str, mean: float, deviation: float, lower: float, upper: float
    ) -> "Parameter":
        """Return the ln of a number in [lower, upper], which starts at its prior mean."""
        return cls(name, mean, float(np.log(lower)), float(np.log(upper)), (mean, deviation))

    def draw(self, rng: Generator) -> float:
        """Draw from the prior within the bounds."""
        return float(np.clip(rng.normal(*self.prior), self.lower, self.upper))


class Kernel(ABC):
    """k(a, b) over rows of inputs, shape (n, d)."""

    parameters: tuple[Parameter, ...]

    @abstractmethod
    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """Return K, shape (n, m), between rows a (n, d) and b (m, d)."""

    @abstractmethod
    def variance(self, theta: Array, inputs: Array) -> Array:
        """Return k(a, a) of each row, shape (n,)."""

    @abstractmethod
    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """Return K and a function of W, symmetric (n, n), to sum_ij W_ij dK_ij/dtheta."""

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """Return K and a function of W, (n, m) each, to sum_j W_ij dK_ij/da_i, shape (n, d).

        Only kernels of constant variance, which are searched by gradients, have it.
        """
        raise NotImplementedError


class Constant(Kernel):
    """The same covariance everywhere: a level, or the factor in front of another kernel."""

    def __init__(self, parameter: Parameter | None = None) -> None:
        self.parameters = (parameter or Parameter.of_log("variance", 0.0, 1.0, 0.05, 20.0),)

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        return np.full((len(a), len(b)), np.exp(theta[0]))

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        return np.full(len(inputs), np.exp(theta[0]))

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        value = np.exp(theta[0])
        K = np.full((len(inputs), len(inputs)), value)
        return K, lambda weights: np.array([value * weights.sum()])

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """See `Kernel.input_pullback`."""
        return self.covariance(theta, a, b), lambda weights: np.zeros_like(a)  # noqa: ARG005


class Product(Kernel):
    """k_1 k_2 ..., which is 1 without parts."""

    def __init__(self, parts: Sequence[Kernel]) -> None:
        self.parts = tuple(parts)
        self.parameters = tuple(p for part in self.parts for p in part.parameters)
        self._ends = np.cumsum([len(part.parameters) for part in self.parts])[:-1]

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        factors = [part.covariance(t, a, b) for part, t in self._each(theta)]
        return reduce(np.multiply, factors, np.ones((len(a), len(b))))

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        factors = [part.variance(t, inputs) for part, t in self._each(theta)]
        return reduce(np.multiply, factors, np.ones(len(inputs)))

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        pairs = [part.pullback(t, inputs) for part, t in self._each(theta)]
        K, pulls = _multiplied(pairs, (len(inputs), len(inputs)))
        return K, lambda weights: np.concatenate([np.zeros(0), *pulls(weights)])

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """See `Kernel.input_pullback`."""
        pairs = [part.input_pullback(t, a, b) for part, t in self._each(theta)]
        K, pulls = _multiplied(pairs, (len(a), len(b)))
        return K, lambda weights: np.sum(pulls(weights), axis=0)

    def _each(self, theta: Array) -> Iterator[tuple[Kernel, Array]]:
        return zip(self.parts, np.split(theta, self._ends), strict=bool(self.parts))


def _multiplied(
    pairs: Sequence[tuple[Array, Pullback]], shape: tuple[int, int]
) -> tuple[Array, Callable[[Array], list[Array]]]:
    """Return the product of factors, and a function of weights to the pull of each factor."""
    factors = [K for K, _ in pairs]
    # The product of all other factors, without a division.
    before = [np.ones(shape), *accumulate(factors, np.multiply)]
    after = [np.ones(shape), *accumulate(factors[:0:-1], np.multiply)][::-1]
    others = [b * a for b, a in zip(before[:-1], after, strict=False)]
    return before[-1], lambda weights: [
        pull(weights * other) for (_, pull), other in zip(pairs, others, strict=True)
    ]


NOISE = Parameter.of_log("noise variance", float(np.log(1e-2)), 2.0, 1e-6, 1.0)
"""Ln of the noise variance as a share of a target's variance."""
_OF_NONE = Parameter.of_log(
    "noise variance of the smallest subset", float(np.log(1e-2)), 2.0, 1e-6, 4.0
)


class Noise:
    """sigma^2 of each row of inputs, (n, d), as a share of a target's variance.

    It is the same everywhere; `parameter` is its logarithm.
    """

    def __init__(self, parameter: Parameter = NOISE) -> None:
        self.parameters: tuple[Parameter, ...] = (parameter,)

    def variance(self, theta: Array, inputs: Array) -> Array:
        """Return sigma^2 of each row, shape (n,)."""
        return np.full(len(inputs), np.exp(theta[0]))

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """Return sigma^2 and a function of weights w, (n,), to sum_i w_i dsigma_i^2 / dtheta."""
        value = np.exp(theta[0])
        return self.variance(theta, inputs), lambda weights: np.array([value * weights.sum()])


class FallingNoise(Noise):
    """sigma_0^2 + sigma_1^2 (1 - s)^2, with s in `column`: small subsets scatter more."""

    def __init__(self, column: int) -> None:
        self.column = column
        self.parameters = NOISE, _OF_NONE

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Noise.variance`."""
        everywhere, small = np.exp(theta)
        return everywhere + small * (1 - inputs[:, self.column]) ** 2

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Noise.pullback`."""
        everywhere, small = np.exp(theta)
        fall = (1 - inputs[:, self.column]) ** 2
        return self.variance(theta, inputs), lambda weights: np.array(
            [everywhere * weights.sum(), small * (weights @ fall)]
        )


def lengthscale_parameter(name: str, n_lengthscales: int) -> Parameter:
    """Return a lengthscale's prior: ln l ~ N(ln 0.5 + max(0, ln(d/4)/2), 1), 0.03 to 20."""
    mean = float(np.log(0.5) + max(0.0, 0.5 * np.log(n_lengthscales / 4)))
    return Parameter.of_log(name, mean, 1.0, 0.03, 20.0)


class Stationary(Kernel):
    """A function of r^2 = sum_j (a_j - b_j)^2 / l_j^2 over `columns`.

    `groups` has the lengthscale of each column, by default one each (ARD); `parameters` are their
    logarithms.
    """

    def __init__(
        self,
        columns: Sequence[int] | NDArray[np.intp],
        groups: Sequence[int] | NDArray[np.intp] | None = None,
        parameters: Sequence[Parameter] | None = None,
    ) -> None:
        self.columns = np.asarray(columns, dtype=np.intp)
        self.groups = np.asarray(range(len(columns)) if groups is None else groups, dtype=np.intp)
        n = int(self.groups.max()) + 1
        self.parameters = tuple(
            parameters or [lengthscale_parameter(f"lengthscale {i}", n) for i in range(n)]
        )

    @abstractmethod
    def profile(self, squared: Array) -> tuple[Array, Array]:
        """Return the covariance and its derivative by r^2, at r^2."""

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        scale = self._scale(theta)
        return self.profile(_squared(a[:, self.columns] / scale, b[:, self.columns] / scale))[0]

    def variance(self, theta: Array, inputs: Array) -> Array:  # noqa: ARG002
        """See `Kernel.variance`."""
        return np.ones(len(inputs))

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        scaled = inputs[:, self.columns] / self._scale(theta)
        K, slope = self.profile(_squared(scaled, scaled))

        def pull(weights: Array) -> Array:
            # sum_ij G_ij (x_i - x_j)^2 = 2 (sum_i g_i x_i^2 - x'Gx) with g the row sums of G.
            G = weights * slope
            spread = G.sum(axis=1) @ scaled**2 - np.einsum("ij,ij->j", scaled, G @ scaled)
            return -4.0 * np.bincount(self.groups, spread, len(self.parameters))

        return K, pull

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """See `Kernel.input_pullback`."""
        scale = self._scale(theta)
        left, right = a[:, self.columns] / scale, b[:, self.columns] / scale
        K, slope = self.profile(_squared(left, right))

        def pull(weights: Array) -> Array:
            G = weights * slope
            gradient = np.zeros_like(a)
            gradient[:, self.columns] = 2 * (left * G.sum(axis=1)[:, None] - G @ right) / scale
            return gradient

        return K, pull

    def _scale(self, theta: Array) -> Array:
        return np.exp(theta)[self.groups]


class Matern52(Stationary):
    """(1 + a + a^2/3) exp(-a) with a = sqrt(5) r."""

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """See `Stationary.profile`."""
        a = np.sqrt(5.0 * squared)
        decay = np.exp(-a)
        return (1 + a + a * a / 3) * decay, (-5 / 6) * (1 + a) * decay


class RBF(Stationary):
    """exp(-r^2 / 2)."""

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """See `Stationary.profile`."""
        K = np.exp(-squared / 2)
        return K, -K / 2


def _squared(a: Array, b: Array) -> Array:
    lengths = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)
    return np.maximum(lengths - 2 * (a @ b.T), 0.0)


CORRELATION = Parameter("logit rho", -0.5, -5.0, 5.0, (-0.5, 1.5))
"""Similarity of the choices of a step."""


class Conditional(Kernel):
    """rho + (1 - rho) [same choice] k(a, b): one step of a pipeline and its hyperparameters.

    The product over the steps is the kernel of whole pipelines. Parts that are inactive in both
    rows must be equal, so that they add no distance. `correlation` is logit rho, and `within` is k,
    None if only the choice is compared.
    """

    def __init__(
        self, choice: int, within: Kernel | None = None, correlation: Parameter = CORRELATION
    ) -> None:
        self.choice = choice
        self.within = within or Product(())
        self.parameters = (correlation, *self.within.parameters)

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        rho, same = _expit(theta[0]), self._same(a, b)
        return rho + (1 - rho) * (same * self.within.covariance(theta[1:], a, b))

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        rho = _expit(theta[0])
        return rho + (1 - rho) * self.within.variance(theta[1:], inputs)

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        rho, same = _expit(theta[0]), self._same(inputs, inputs)
        K, inner = self.within.pullback(theta[1:], inputs)
        inside = same * K

        def pull(weights: Array) -> Array:
            head = rho * (1 - rho) * np.sum(weights * (1 - inside))
            return np.append(head, inner((1 - rho) * weights * same))

        return rho + (1 - rho) * inside, pull

    def _same(self, a: Array, b: Array) -> Array:
        return np.equal.outer(a[:, self.choice], b[:, self.choice]).astype(np.float64)


def _expit(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))
