"""The posterior density of a Gaussian process's parameters, and Cholesky factors."""

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotri, dtrtrs

from prefect_tune.optimizers.models.kernels import Kernel, Noise, Parameter
from prefect_tune.optimizers.space.vectors import Array

_JITTERS = (0.0, 1e-10, 1e-8, 1e-6, 1e-4)
LEAST_VARIANCE = 1e-10
"""Lower bound on the variance of a prediction, and jitter for a possibly singular covariance
matrix, for targets of range 1."""


def cholesky(K: Array, diagonal: float | Array) -> Array:
    """Return L with LL' = K + diagonal, adding the smallest jitter for which L exists.

    Raises ValueError if no jitter suffices.
    """
    typical = float(np.mean(np.diag(K) + diagonal))
    for jitter in _JITTERS:
        shifted = np.array(K, order="F")
        shifted[np.diag_indices_from(shifted)] += diagonal + jitter * typical
        L, info = dpotrf(shifted, lower=1, clean=1, overwrite_a=1)
        if info == 0:
            return L
    raise ValueError(f"a covariance matrix of {len(K)} rows is not positive definite")


def solve_triangular(L: Array, sides: Array, *, transposed: bool = False) -> Array:
    """Return L^-1 `sides`, or L^-T `sides` if `transposed`, shape (n, m)."""
    solution, _ = dtrtrs(L, sides, lower=1, trans=int(transposed))
    return solution


def log_posterior(
    kernel: Kernel,
    theta: Array,
    inputs: Array,
    targets: Array,
    *,
    noise: Noise,
    has_constant: bool = True,
) -> tuple[float, Array]:
    """Return the log posterior of theta and its gradient, shape (p + q,).

    The log posterior is the log marginal likelihood, averaged over targets, plus the log of the
    normal priors without their constants.

    Args:
        kernel: Kernel with p parameters.
        theta: Parameters of the kernel, followed by the q parameters of the noise.
        inputs: Inputs, shape (n, d).
        targets: Standardized targets, shape (n, t).
        noise: Model of the noise.
        has_constant: Whether the mean is a constant estimated by generalized least squares instead
            of 0. The derivative of the likelihood with respect to this constant is 0.
    """
    p = len(kernel.parameters)
    K, pull = kernel.pullback(theta[:p], inputs)
    variance, pull_noise = noise.pullback(theta[p:], inputs)
    n, t = targets.shape
    L = cholesky(K, variance)
    inverse, _ = dpotri(L, lower=1)
    inverse = inverse + np.tril(inverse, -1).T
    residuals = targets
    if has_constant:
        ones = inverse.sum(axis=0)
        residuals = targets - (ones @ targets) / ones.sum()
    solved = inverse @ residuals
    fit = np.einsum("ij,ij->", residuals, solved) / t
    value = -0.5 * fit - np.log(np.diag(L)).sum() - 0.5 * n * np.log(2 * np.pi)
    weights = solved @ solved.T / t - inverse
    gradient = 0.5 * np.append(pull(weights), pull_noise(np.diag(weights)))
    prior, slope = _log_prior((*kernel.parameters, *noise.parameters), theta)
    return float(value + prior), gradient + slope


def log_posterior_value(
    kernel: Kernel,
    theta: Array,
    inputs: Array,
    targets: Array,
    *,
    noise: Noise,
    has_constant: bool = True,
) -> float:
    """Return the value of `log_posterior` without the gradient, at a third of the cost.

    The value is -inf if a parameter is out of bounds.
    """
    parameters = (*kernel.parameters, *noise.parameters)
    if any(not p.lower <= x <= p.upper for p, x in zip(parameters, theta, strict=True)):
        return -np.inf
    p = len(kernel.parameters)
    n, t = targets.shape
    L = cholesky(kernel.covariance(theta[:p], inputs, inputs), noise.variance(theta[p:], inputs))
    sides = np.column_stack([np.ones(n), targets]) if has_constant else targets
    whitened = solve_triangular(L, sides)
    if has_constant:
        ones, whitened = whitened[:, :1], whitened[:, 1:]
        whitened = whitened - ones * (ones.T @ whitened) / (ones.T @ ones)
    fit = np.einsum("ij,ij->", whitened, whitened) / t
    value = -0.5 * fit - np.log(np.diag(L)).sum() - 0.5 * n * np.log(2 * np.pi)
    return float(value + _log_prior(parameters, theta)[0])


def _log_prior(parameters: tuple[Parameter, ...], theta: Array) -> tuple[float, Array]:
    """Return the log density of the normal priors without constants, and the gradient."""
    means, deviations = np.array([p.prior for p in parameters]).T
    steps = (theta - means) / deviations
    return -0.5 * float(steps @ steps), -steps / deviations
