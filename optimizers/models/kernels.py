"""Covariance functions, which can be multiplied and nested, with gradients for fitting.

Parameters are a vector `theta` on an unbounded scale: logarithms of lengthscales and variances, and
logits of correlations. A pullback maps weights W of a kernel matrix K to sum_ij W_ij dK_ij/dtheta,
so that no array of shape (n, n, p) is needed. Stationary kernels depend on the scaled distance
between inputs, and conditional kernels depend on choices.
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
    """One component of the parameter vector theta.

    Attributes:
        name: Name of the parameter.
        start: Starting value in a fit.
        lower: Lower bound of the parameter.
        upper: Upper bound of the parameter.
        prior: Mean and standard deviation of the normal prior. An infinite deviation stands for a
            uniform prior between the bounds.
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
        """Return the parameter ln x for x in [lower, upper].

        `mean` and `deviation` are the mean and standard deviation of ln x. A fit starts at `mean`.
        """
        return cls(name, mean, float(np.log(lower)), float(np.log(upper)), (mean, deviation))

    def draw(self, rng: Generator) -> float:
        """Return a draw from the prior, clipped to the bounds."""
        if np.isinf(self.prior[1]):
            return float(rng.uniform(self.lower, self.upper))
        return float(np.clip(rng.normal(*self.prior), self.lower, self.upper))


class Kernel(ABC):
    """A kernel k(a, b) over rows of inputs, shape (n, d)."""

    parameters: tuple[Parameter, ...]

    @abstractmethod
    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """Return k(a, b), shape (n, m), for rows a, shape (n, d), and b, shape (m, d)."""

    @abstractmethod
    def variance(self, theta: Array, inputs: Array) -> Array:
        """Return k(a, a) for each row a of inputs, shape (n,)."""

    @abstractmethod
    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """Return K, shape (n, n), and the pullback of theta.

        The pullback maps symmetric W, shape (n, n), to sum_ij W_ij dK_ij/dtheta, shape (p,).
        """

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """Return K = k(a, b), shape (n, m), and the pullback of inputs.

        The pullback maps W, shape (n, m), to sum_j W_ij dK_ij/da_i, shape (n, d). Raises
        NotImplementedError for kernels without a constant variance, which are maximized without
        gradients.
        """
        raise NotImplementedError


class Constant(Kernel):
    """A constant covariance, for example as a factor of another kernel."""

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
    """The product of kernels, k_1 k_2 ...; 1 if there are no kernels."""

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
    """Return the product of factors, and a function from weights to the pullback of each factor."""
    factors = [K for K, _ in pairs]
    # The product of all other factors, computed without a division.
    before = [np.ones(shape), *accumulate(factors, np.multiply)]
    after = [np.ones(shape), *accumulate(factors[:0:-1], np.multiply)][::-1]
    others = [b * a for b, a in zip(before[:-1], after, strict=False)]
    return before[-1], lambda weights: [
        pull(weights * other) for (_, pull), other in zip(pairs, others, strict=True)
    ]


NOISE = Parameter.of_log("noise variance", float(np.log(1e-2)), 2.0, 1e-6, 1.0)
"""Logarithm of the noise variance, relative to the target's variance."""
_OF_NONE = Parameter.of_log(
    "noise variance of the smallest subset", float(np.log(1e-2)), 2.0, 1e-6, 4.0
)


class Noise:
    """Noise with a constant variance sigma^2, as a fraction of the target's variance.

    `parameter` is ln sigma^2.
    """

    def __init__(self, parameter: Parameter = NOISE) -> None:
        self.parameters: tuple[Parameter, ...] = (parameter,)

    def variance(self, theta: Array, inputs: Array) -> Array:
        """Return sigma^2 for each row of inputs, shape (n,)."""
        return np.full(len(inputs), np.exp(theta[0]))

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """Return sigma^2, shape (n,), and the pullback of theta.

        The pullback maps weights w, shape (n,), to sum_i w_i dsigma_i^2/dtheta, shape (q,).
        """
        value = np.exp(theta[0])
        return self.variance(theta, inputs), lambda weights: np.array([value * weights.sum()])


class FallingNoise(Noise):
    """Noise with variance sigma_0^2 + sigma_1^2 (1 - s)^2, which is larger on small subsets.

    The input column `column` contains s.
    """

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
    """Return a lengthscale l in [0.03, 20] with ln l ~ N(ln 0.5 + max(0, ln(d/4)/2), 1).

    In the formula, d is `n_lengthscales`.
    """
    mean = float(np.log(0.5) + max(0.0, 0.5 * np.log(n_lengthscales / 4)))
    return Parameter.of_log(name, mean, 1.0, 0.03, 20.0)


class Stationary(Kernel):
    """A kernel that is a function of r^2 = sum_j (a_j - b_j)^2 / l_j^2.

    Args:
        columns: Columns j of the inputs.
        groups: Lengthscale number of each column; None for one lengthscale per column (ARD).
        parameters: Logarithms of the lengthscales; None for `lengthscale_parameter`.
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
        """Return the covariance at r^2 (`squared`), and the derivative with respect to r^2."""

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
    """The Matern kernel (1 + a + a^2/3) exp(-a) with a = sqrt(5) r."""

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """See `Stationary.profile`."""
        a = np.sqrt(5.0 * squared)
        decay = np.exp(-a)
        return (1 + a + a * a / 3) * decay, (-5 / 6) * (1 + a) * decay


class RBF(Stationary):
    """The squared exponential kernel exp(-r^2 / 2)."""

    def profile(self, squared: Array) -> tuple[Array, Array]:
        """See `Stationary.profile`."""
        K = np.exp(-squared / 2)
        return K, -K / 2


def _squared(a: Array, b: Array) -> Array:
    lengths = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)
    return np.maximum(lengths - 2 * (a @ b.T), 0.0)


CORRELATION = Parameter("logit rho", -0.5, -5.0, 5.0, (-0.5, 1.5))
"""Similarity of a step's choices."""


class Conditional(Kernel):
    """The kernel rho + (1 - rho) [same choice] k(a, b) for one step and its hyperparameters.

    The product over all steps is the kernel of whole pipelines. Inputs that are inactive in both
    rows must be equal, so that such inputs add no distance.

    Args:
        choice: Column with the choice of the step.
        within: Kernel k over the hyperparameters; None to compare choices only.
        correlation: Parameter logit rho.
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
