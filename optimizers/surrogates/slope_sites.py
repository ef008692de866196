"""Where a curve is told not to fall."""

import numpy as np

from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel, SquaredExponential
from prefect_tune.optimizers.surrogates.kernel import Array

__all__ = ["at_times", "site_times"]

_SPACING = 0.7
"""Of sites, in lengthscales of t: what lies between them cannot fall then."""


def site_times(kernel: CurveKernel, theta: Array, t_max: int, n: int | None = None) -> Array:
    """Return times in (0, 1] of the sites of one curve, ascending.

    What decays has few, spaced evenly by the logarithm: two are 1 / t_max and 1. A squared
    exponential needs one every 0.7 lengthscales, from 4 to 16.

    Args:
        kernel: Of curves.
        theta: Its parameters, shape (p,); what stands behind them, as a noise, is not read.
        t_max: Epochs of a full training, at least 2.
        n: How many, instead of the kernel's own number.

    Raises:
        ValueError: If there are fewer than two epochs or sites.
    """
    if t_max < 2 or (n is not None and n < 2):
        raise ValueError(f"sites stand at 2 times or more of 2 epochs or more; got {n} of {t_max}")
    if isinstance(kernel.of_time, SquaredExponential):
        lengthscale = float(np.exp(theta[len(kernel.parameters) - 1]))
        needed = int(np.clip(np.ceil(1 / (_SPACING * lengthscale)) + 1, 4, 16))
        return np.linspace(1 / t_max, 1.0, n or needed)
    return np.geomspace(1 / t_max, 1.0, n or 2)


def at_times(inputs: Array, column: int, times: Array) -> Array:
    """Return each row, shape (m, d), at each time, shape (m len(times), d)."""
    rows: Array = np.repeat(np.asarray(inputs, dtype=np.float64), len(times), axis=0)
    rows[:, column] = np.tile(times, len(inputs))
    return rows
