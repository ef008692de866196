"""The posterior density of a Gaussian process's parameters, which fitting maximises."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotri

from prefect_tune.optimizers.surrogates.cholesky import cholesky
from prefect_tune.optimizers.surrogates.kernel import Kernel, Parameter

__all__ = ["NOISE", "log_posterior"]

Array = NDArray[np.floating[Any]]

NOISE = Parameter(
    "noise variance",
    start=float(np.log(1e-2)),
    lower=float(np.log(1e-6)),
    upper=0.0,
    prior=(float(np.log(1e-2)), 2.0),
)
"""Ln of the noise variance as a share of a target's variance."""


def log_posterior(
    kernel: Kernel,
    theta: Array,
    inputs: Array,
    targets: Array,
    *,
    noise: Parameter = NOISE,
    has_constant: bool = True,
) -> tuple[float, Array]:
    """Return mean log marginal likelihood of the targets plus log priors, and its gradient.

    Normal priors enter without their constants; the mean is profiled out by generalised least
    squares, so its derivative drops out.

    Args:
        kernel: With p parameters.
        theta: Those and ln of the noise variance, shape (p + 1,).
        inputs: Shape (n, d).
        targets: Standardised, shape (n, t).
        noise: Gives the noise's prior.
        has_constant: Whether a constant mean is estimated; else it is 0.
    """
    K, pull = kernel.pullback(theta[:-1], inputs)
    n, t = targets.shape
    noise_variance = float(np.exp(theta[-1]))
    L = cholesky(K, noise_variance)
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
    gradient = 0.5 * np.append(pull(weights), noise_variance * np.trace(weights))
    for i, parameter in enumerate((*kernel.parameters, noise)):
        if parameter.prior is not None:
            mean, deviation = parameter.prior
            value -= 0.5 * ((theta[i] - mean) / deviation) ** 2
            gradient[i] -= (theta[i] - mean) / deviation**2
    return float(value), gradient
