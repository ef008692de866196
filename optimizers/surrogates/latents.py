"""The latent curves of candidates, from which predictions at any fidelity follow."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Latents"]

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
