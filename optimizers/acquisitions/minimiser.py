"""The belief which of some points, the representers, has the least loss on the full data."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.surrogates.cholesky import cholesky, solve_triangular

__all__ = ["Minimiser", "whitened_normals"]

Array = NDArray[np.floating[Any]]

# In units of the variances: representers that are one point leave the covariance singular.
_JITTER = 1e-10


def whitened_normals(n_points: int, n_draws: int, rng: np.random.Generator) -> Array:
    """Draw U, shape (R, S), whose rows have mean 0 and UU'/S = I exactly.

    Exact first and second moments take nine tenths of the noise out of the information gain. The
    same U serves all hyperparameter samples and rounds of an ask: common random numbers.

    Args:
        n_points: R, the number of representers.
        n_draws: S, more than R.
        rng: Where the normals come from.

    Raises:
        ValueError: If there are no points, or not more draws than points.
    """
    if not 0 < n_points < n_draws:
        raise ValueError(f"{n_draws} draws of {n_points} points cannot be whitened; draw more")
    normals = rng.standard_normal((n_points, n_draws))
    normals -= normals.mean(axis=1, keepdims=True)
    return solve_triangular(cholesky(normals @ normals.T / n_draws, 0.0), normals)


@dataclass(frozen=True, slots=True)
class Minimiser:
    """Joint draws of R representers, and which of them is the least in each.

    Attributes:
        mean: Of their losses at s = 1, shape (R,).
        factor: L_V, the Cholesky factor of their covariance V, shape (R, R).
        normals: U, whitened, shape (R, S); the draws are mean + L_V U.
        winners: The least of each draw, shape (S,).
        probabilities: p_min, the share of the draws that each wins, shape (R,).
    """

    mean: Array
    factor: Array
    normals: Array
    winners: NDArray[np.intp]
    probabilities: Array

    def __post_init__(self) -> None:
        n, draws = len(self.mean), self.normals.shape[-1]
        shapes = {
            "factor": (self.factor.shape, (n, n)),
            "normals": (self.normals.shape, (n, draws)),
            "winners": (self.winners.shape, (draws,)),
            "probabilities": (self.probabilities.shape, (n,)),
        }
        for name, (shape, right) in shapes.items():
            if shape != right:
                raise ValueError(f"{name} of {n} representers: shape {shape}, not {right}")
        if draws <= n:
            raise ValueError(f"{draws} draws of {n} representers; more draws are needed")

    @classmethod
    def of(cls, mean: Array, covariance: Array, normals: Array) -> Self:
        """Draw the representers' losses jointly.

        Args:
            mean: Shape (R,).
            covariance: V, shape (R, R), which may be singular.
            normals: As `whitened_normals` makes them, shape (R, S).

        Raises:
            ValueError: If a shape does not fit, or V has negative eigenvalues.
        """
        largest = float(np.diag(covariance).max())
        factor = cholesky(covariance, _JITTER * largest if largest > 0 else _JITTER)
        if normals.shape[0] != len(mean):
            raise ValueError(f"normals for {normals.shape[0]} representers, not for {len(mean)}")
        winners = np.argmin(mean[:, None] + factor @ normals, axis=0)
        probabilities = np.bincount(winners, minlength=len(mean)) / normals.shape[1]
        return cls(mean, factor, normals, winners, probabilities)

    @property
    def entropy(self) -> float:
        """H of the probabilities, in nats: ln R when nothing is known, 0 when all is."""
        p = self.probabilities[self.probabilities > 0]
        return float(-(p * np.log(p)).sum()) + 0.0
