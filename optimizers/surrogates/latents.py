"""The latent curves of candidates, from which predictions at any fidelity follow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.surrogates.cholesky import solve_triangular
from prefect_tune.optimizers.surrogates.fidelity_kernel import FidelityKernel
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess

__all__ = ["Latents", "latents_of"]

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Latents:
    """Curves over the fidelity of C candidates: f(x, s) = phi(s)'g(x), in standardised units.

    With all r weights of a candidate known, each further fidelity costs O(r R) alone.

    Attributes:
        mean: Of g(x_c), shape (C, r).
        covariance: Of g(x_c), shape (C, r, r).
        cross: Cov(g_a(x_c), f(z_i, 1)) with R representers z, shape (C, r, R).
    """

    mean: Array
    covariance: Array
    cross: Array

    def __post_init__(self) -> None:
        if self.mean.ndim != 2:
            raise ValueError(f"the mean has shape {self.mean.shape}, not (C, r)")
        n, r = self.mean.shape
        if self.covariance.shape != (n, r, r):
            raise ValueError(f"the covariance has shape {self.covariance.shape}, not {(n, r, r)}")
        if self.cross.ndim != 3 or self.cross.shape[:2] != (n, r):
            raise ValueError(f"the cross-covariance has shape {self.cross.shape}, not {(n, r)} + R")


def latents_of(process: GaussianProcess, inputs: Array, representers: Array) -> Latents:
    """Return the latents of candidates by a process, so that all sizes cost what one does.

    Args:
        process: Of one target, with a `FidelityKernel` and a mean of 0.
        inputs: Of the candidates, shape (C, d); the column of the fidelity is not read.
        representers: Shape (R, d), at s = 1.
    """
    kernel = process.kernel
    if not isinstance(kernel, FidelityKernel):
        raise TypeError(f"latents are those of a FidelityKernel; got {type(kernel).__name__}")
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
