"""Covariances of the scaled distance between inputs, and of choices."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.kernel import Kernel, Parameter, Pullback


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
        if len(self.groups) != len(self.columns) or len(self.parameters) != n:
            raise ValueError(
                f"{len(self.columns)} columns need as many groups, and {n} lengthscales; got "
                f"{len(self.groups)} groups and {len(self.parameters)} lengthscales"
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
        self.within = within
        self.parameters = (correlation, *(within.parameters if within else ()))

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        rho, same = _expit(theta[0]), self._same(a, b)
        inside = same if self.within is None else same * self.within.covariance(theta[1:], a, b)
        return rho + (1 - rho) * inside

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        rho = _expit(theta[0])
        if self.within is None:
            return np.ones(len(inputs))
        return rho + (1 - rho) * self.within.variance(theta[1:], inputs)

    def variance_gradient(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance_gradient`."""
        if self.within is None:
            return np.zeros_like(inputs)
        inside: Array = self.within.variance_gradient(theta[1:], inputs)
        return (1 - _expit(theta[0])) * inside

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        rho, same = _expit(theta[0]), self._same(inputs, inputs)
        inside, inner = same, None
        if self.within is not None:
            K, inner = self.within.pullback(theta[1:], inputs)
            inside = same * K

        def pull(weights: Array) -> Array:
            head = rho * (1 - rho) * np.sum(weights * (1 - inside), keepdims=True).ravel()
            return head if inner is None else np.append(head, inner((1 - rho) * weights * same))

        return rho + (1 - rho) * inside, pull

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """See `Kernel.input_pullback`."""
        rho, same = _expit(theta[0]), self._same(a, b)
        if self.within is None:
            return rho + (1 - rho) * same, lambda weights: np.zeros_like(a)  # noqa: ARG005
        K, inner = self.within.input_pullback(theta[1:], a, b)
        return rho + (1 - rho) * same * K, lambda weights: inner((1 - rho) * weights * same)

    def _same(self, a: Array, b: Array) -> Array:
        return np.equal.outer(a[:, self.choice], b[:, self.choice]).astype(np.float64)


def _expit(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))
