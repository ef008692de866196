"""Expected improvement of a loss plus what a search adds to it: penalties and violated constraints.

The process models the loss f and, as further targets, the constraint values g. Without constraints
the added term is a known function of the candidate, and the improvement of the sum is exact. With
them, the sum is taken for normal: mean of f + penalty + (rho_g / 2) sum_i E max(0, g_i + c_i)^2,
and the deviation of f alone.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from prefect_tune.optimizers.acquisitions.expected_improvement import (
    log_expected_improvement,
    log_expected_improvement_gradient,
)
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess

__all__ = ["AugmentedImprovement", "expected_squared_excess"]

Array = NDArray[np.floating[Any]]
_ROOT_TAU = np.sqrt(2 * np.pi)


def expected_squared_excess(mean: Array, deviation: Array) -> tuple[Array, Array, Array]:
    """E max(0, g)^2 for g ~ N(mean, deviation^2), and its derivatives by mean and deviation."""
    ratio = mean / deviation
    density, mass = np.exp(-(ratio**2) / 2) / _ROOT_TAU, ndtr(ratio)
    value = (mean**2 + deviation**2) * mass + mean * deviation * density
    return value, 2 * (mean * mass + deviation * density), 2 * deviation * mass


@dataclass(frozen=True, slots=True)
class AugmentedImprovement:
    """Ln of the expected improvement on the least augmented loss.

    Attributes:
        process: Fitted to targets (n, 1 + M): the loss, then M constraint values.
        best: Least augmented loss observed.
        rho_g: Weight of the squared violations.
        shifts: c_i, so that g_i + c_i > 0 is what is penalised, shape (M,).
    """

    process: GaussianProcess
    best: float
    rho_g: float = 0.0
    shifts: Array = field(default_factory=lambda: np.zeros(0))

    def score(self, inputs: Array, penalties: Array) -> Array:
        """Return the scores, shape (n,), of inputs (n, d) with penalties (n,)."""
        mean, deviation = self.process.predict(inputs)
        total = mean[:, 0] + penalties
        if len(self.shifts):
            excess, _, _ = expected_squared_excess(mean[:, 1:] + self.shifts, deviation[:, 1:])
            total = total + 0.5 * self.rho_g * excess.sum(axis=1)
        return log_expected_improvement(total, deviation[:, 0], self.best)

    def score_with_gradient(self, inputs: Array, penalties: Array) -> tuple[Array, Array]:
        """Return `score` and its gradient by the inputs, shape (n, d), penalties held fixed."""
        mean, deviation, by_mean, by_deviation = self.process.predict_with_gradient(inputs)
        total, gradient = mean[:, 0] + penalties, by_mean[:, 0]
        if len(self.shifts):
            excess, slope, spread = expected_squared_excess(
                mean[:, 1:] + self.shifts, deviation[:, 1:]
            )
            total = total + 0.5 * self.rho_g * excess.sum(axis=1)
            gradient = gradient + 0.5 * self.rho_g * (
                slope[:, :, None] * by_mean[:, 1:] + spread[:, :, None] * by_deviation[:, 1:]
            ).sum(axis=1)
        score = log_expected_improvement(total, deviation[:, 0], self.best)
        return score, log_expected_improvement_gradient(
            total, deviation[:, 0], self.best, gradient, by_deviation[:, 0]
        )
