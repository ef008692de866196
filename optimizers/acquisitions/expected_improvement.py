"""Expected improvement in log form, which ranks candidates long after the plain form is 0.0."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, ndtr

__all__ = [
    "expected_improvement",
    "log_expected_improvement",
    "log_expected_improvement_gradient",
    "log_standard_improvement",
    "log_standard_improvement_slope",
]

_LOG_ROOT_TAU = 0.5 * np.log(2 * np.pi)


def log_standard_improvement(u: ArrayLike) -> NDArray[np.float64]:
    """ln(phi(u) + u Phi(u)) for any u, after Ament et al. 2023 (eq. 9).

    The plain form is exactly 0 in float64 below u = -38.58. The absolute error of this one is at
    most 1e-7 over u from -9e4 to 5.
    """
    u = np.asarray(u, dtype=np.float64)
    # Each branch is evaluated only on arguments where it is defined.
    near, middle, far = np.maximum(u, -1.0), np.clip(u, -1e4, -1.0), np.minimum(u, -1e4)
    plain = np.log(np.exp(-(near**2) / 2 - _LOG_ROOT_TAU) + near * ndtr(near))
    scaled = np.log1p(middle * np.sqrt(np.pi / 2) * erfcx(-middle / np.sqrt(2)))
    tail = np.where(u < -1e4, -2 * np.log(-far), scaled)
    below = -(np.minimum(u, -1.0) ** 2) / 2 - _LOG_ROOT_TAU + tail
    log_h: NDArray[np.float64] = np.where(u > -1, plain, below)
    return log_h


def log_expected_improvement(
    mean: NDArray[np.floating[Any]],
    deviation: NDArray[np.floating[Any]],
    best: float,
    xi: float = 0.0,
) -> NDArray[np.float64]:
    """Return ln of the expected improvement on `best` by more than `xi`, shape (n,).

    Args:
        mean: Predicted losses, shape (n,).
        deviation: Their standard deviations, all positive, shape (n,).
        best: Smallest loss observed.
        xi: Improvement that does not count yet, in the unit of the loss.
    """
    log_ei: NDArray[np.float64] = np.log(deviation) + log_standard_improvement(
        (best - xi - mean) / deviation
    )
    return log_ei


def log_standard_improvement_slope(u: ArrayLike) -> NDArray[np.float64]:
    """D ln(phi(u) + u Phi(u)) / du = Phi(u) / (phi(u) + u Phi(u)), positive for any u."""
    u = np.asarray(u, dtype=np.float64)
    near, middle, far = np.maximum(u, -1.0), np.clip(u, -1e4, -1.0), np.minimum(u, -1e4)
    plain = ndtr(near) / (np.exp(-(near**2) / 2 - _LOG_ROOT_TAU) + near * ndtr(near))
    c = np.sqrt(np.pi / 2) * erfcx(-middle / np.sqrt(2))
    slope: NDArray[np.float64] = np.where(
        u > -1, plain, np.where(u < -1e4, -far, c / (1 + middle * c))
    )
    return slope


def expected_improvement(
    mean: NDArray[np.floating[Any]],
    deviation: NDArray[np.floating[Any]],
    best: float,
    xi: float = 0.0,
) -> NDArray[np.float64]:
    """Return the expected improvement by more than `xi`, shape (n,), in the unit of the loss."""
    return np.exp(log_expected_improvement(mean, deviation, best, xi))


def log_expected_improvement_gradient(
    mean: NDArray[np.floating[Any]],
    deviation: NDArray[np.floating[Any]],
    best: float,
    mean_gradient: NDArray[np.floating[Any]],
    deviation_gradient: NDArray[np.floating[Any]],
) -> NDArray[np.float64]:
    """Return gradient of `log_expected_improvement` at xi = 0 by the inputs, shape (n, d).

    Args:
        mean: Predicted losses, shape (n,).
        deviation: Their standard deviations, all positive, shape (n,).
        best: Smallest loss observed.
        mean_gradient: Shape (n, d).
        deviation_gradient: Shape (n, d).
    """
    u = (best - mean) / deviation
    slope = log_standard_improvement_slope(u)
    by_mean, by_deviation = -slope / deviation, (1 - slope * u) / deviation
    gradient: NDArray[np.float64] = (
        by_mean[:, None] * mean_gradient + by_deviation[:, None] * deviation_gradient
    )
    return gradient
