"""The covariance of losses, or costs, over inputs and a fidelity (Klein et al. 2017, equation 6).

The model is f(x, s) = phi(s)'g(x). The basis functions phi depend on the fidelity s in [0, 1],
where 1 is a full evaluation. The functions g of the inputs share one kernel and have covariance
Sigma. Predictions at any fidelity follow from g(x).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.kernels import Kernel, Parameter, Pullback
from prefect_tune.optimizers.models.log_posterior import solve_triangular
from prefect_tune.optimizers.space.vectors import Array

_WEIGHTS = (
    Parameter("ln of the first weight", 0.0, -4.0, 3.0, (0.0, 1.0)),
    Parameter("second weight on the first", 0.0, -4.0, 4.0, (0.0, 1.0)),
    Parameter("ln of the second weight", 0.0, -5.0, 3.0, (0.0, 1.0)),
    Parameter.of_log("ln of the third weight", float(np.log(0.15)), 0.5, 0.02, 1.0),
)
_ENTRIES = ((0, 0), (1, 0), (1, 1), (2, 2))
"""Row and column of each weight in L."""


@dataclass(frozen=True, slots=True)
class Basis:
    """Basis functions of a fidelity.

    Attributes:
        functions: Function from s, shape (n,), to phi(s), shape (n, r), where r is 1, 2 or 3.
        trend: Diagonal of S0, shape (r,). S0 is the covariance of a curve over s shared by all
            inputs.
    """

    functions: Callable[[Array], Array]
    trend: tuple[float, ...]


class FidelityKernel(Kernel):
    """The kernel k(x, x') phi(s)'Sigma phi(s') + phi(s)'S0 phi(s'), with s in `column`.

    Sigma is LL', with L = [[e^a, 0], [b, e^c]] for the first two basis functions. The third basis
    function, if any, is independent of the first two, with standard deviation e^q.
    """

    def __init__(self, within: Kernel, column: int, basis: Basis) -> None:
        self.within, self.column, self.basis = within, column, basis
        self.rank = len(basis.trend)
        of_rank = [w for w, (i, _) in zip(_WEIGHTS, _ENTRIES, strict=True) if i < self.rank]
        self.parameters = (*within.parameters, *of_rank)
        self._n_within = len(within.parameters)
        self._trend = np.diag(basis.trend)

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        inner, outer = self._split(theta)
        left, right = self.functions(a), self.functions(b)
        K = self.within.covariance(inner, a, b) * (left @ self.weights(outer) @ right.T)
        return K + left @ self._trend @ right.T

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        inner, outer = self._split(theta)
        phi = self.functions(inputs)
        varying = self.within.variance(inner, inputs) * _quadratic(phi, self.weights(outer))
        return varying + _quadratic(phi, self._trend)

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        inner, outer = self._split(theta)
        phi = self.functions(inputs)
        within, pull = self.within.pullback(inner, inputs)
        between = phi @ self.weights(outer) @ phi.T

        def pull_all(weights: Array) -> Array:
            by_sigma, root = phi.T @ (weights * within) @ phi, self._root(outer)
            by_root = 2 * by_sigma @ root
            entries = _ENTRIES[: len(outer)]
            gradient = [by_root[i, j] * (root[i, j] if i == j else 1.0) for i, j in entries]
            return np.append(pull(weights * between), gradient)

        return within * between + phi @ self._trend @ phi.T, pull_all

    def functions(self, inputs: Array) -> Array:
        """Return phi(s) for each row of inputs, shape (n, r)."""
        return self.basis.functions(inputs[:, self.column])

    def weights(self, outer: Array) -> Array:
        """Return Sigma, shape (r, r).

        `outer` contains the parameters that follow the parameters of `within`.
        """
        root = self._root(outer)
        return root @ root.T

    def _root(self, outer: Array) -> Array:
        root = np.zeros((self.rank, self.rank))
        for (i, j), value in zip(_ENTRIES, outer, strict=False):
            root[i, j] = np.exp(value) if i == j else value
        return root

    def latent_covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """Return Cov(f(a), g_k(b)) for each function g_k, shape (r, n, m)."""
        inner, outer = self._split(theta)
        within, phi = self.within.covariance(inner, a, b), self.functions(a)
        shared = phi @ self._trend
        return (phi @ self.weights(outer)).T[:, :, None] * within + shared.T[:, :, None]

    def latent_variance(self, theta: Array, inputs: Array) -> Array:
        """Return Cov(g(x), g(x)) for each row of inputs, shape (n, r, r)."""
        inner, outer = self._split(theta)
        varying = self.within.variance(inner, inputs)[:, None, None] * self.weights(outer)
        return varying + self._trend

    def _split(self, theta: Array) -> tuple[Array, Array]:
        return theta[: self._n_within], theta[self._n_within :]


def _quadratic(phi: Array, matrix: Array) -> Array:
    return np.einsum("ij,ij->i", phi @ matrix, phi)


@dataclass(frozen=True, slots=True)
class Latents:
    """Posterior of g(x) for C candidates, in standardized units.

    Given the posterior of g(x), each further fidelity costs only O(r R) per candidate.

    Attributes:
        mean: Mean of g(x_c), shape (C, r).
        covariance: Covariance of g(x_c), shape (C, r, r).
        cross: Cov(g_a(x_c), f(z_i, 1)) for R representers z_i, shape (C, r, R).
    """

    mean: Array
    covariance: Array
    cross: Array


def latents_of(process: GaussianProcess, inputs: Array, representers: Array) -> Latents:
    """Return the latents of candidates, which determine the predictions at all fidelities.

    Args:
        process: Process with one target, a `FidelityKernel` and a mean of 0.
        inputs: Inputs of the candidates, shape (C, d). The fidelity column is ignored.
        representers: Inputs of the representers at s = 1, shape (R, d).

    Raises:
        TypeError: If the process has a different kernel.
    """
    kernel = process.kernel
    if not isinstance(kernel, FidelityKernel):
        raise TypeError(f"latents need a FidelityKernel; got {type(kernel).__name__}")
    theta, r, C = process.kernel_theta, kernel.rank, len(inputs)
    known = kernel.latent_covariance(theta, process.inputs, inputs)
    sides = known.transpose(1, 0, 2).reshape(len(process.inputs), r * C)
    half = solve_triangular(process.factor, sides).reshape(-1, r, C)
    mean = np.tensordot(half, process.whitened[:, 1], axes=(0, 0)).T
    spread = np.einsum("nac,nbc->cab", half, half, optimize=True)
    ahead = kernel.latent_covariance(theta, representers, inputs)
    behind = process.half(representers).T @ half.reshape(-1, r * C)
    cross = ahead.transpose(2, 0, 1) - behind.reshape(-1, r, C).transpose(2, 1, 0)
    return Latents(mean, kernel.latent_variance(theta, inputs) - spread, cross)
