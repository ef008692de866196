"""Where a curve is told not to fall."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.surrogates.cholesky import solve_triangular
from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.surrogates.truncation import LEAST_VARIANCE, Sites, propagate

__all__ = ["at_times", "needed_sites", "site_times"]

_MOST = 120


def site_times(t_max: int, n: int = 2) -> Array:
    """Return times in (0, 1] of the sites of one curve, ascending.

    They are spaced evenly by the logarithm: two are 1 / t_max and 1.

    Args:
        t_max: Epochs of a full training, at least 2.
        n: Number of sites, at least 2.

    Raises:
        ValueError: If there are fewer than two epochs or sites.
    """
    if t_max < 2 or n < 2:
        raise ValueError(f"sites stand at 2 times or more of 2 epochs or more; got {n} of {t_max}")
    return np.geomspace(1 / t_max, 1.0, n)


def at_times(inputs: Array, column: int, times: Array) -> Array:
    """Return each row, shape (m, d), at each time, shape (m len(times), d)."""
    rows: Array = np.repeat(np.asarray(inputs, dtype=np.float64), len(times), axis=0)
    rows[:, column] = np.tile(times, len(inputs))
    return rows


def needed_sites(
    mean: Array, covariance: Array, *, noise: float | None = None, most: int = _MOST
) -> tuple[NDArray[np.intp], Sites]:
    """Return which sites leave no slope with a negative mean, and what they say.

    One after the other, where a slope is least likely not to be negative, until none is expected to
    be. Where slopes rise anyway there is no site: many that nearly do push each other upwards.

    Args:
        mean: Of the slopes, shape (s,).
        covariance: Shape (s, s).
        noise: See `propagate`.
        most: How many are taken at most.
    """
    chosen: list[int] = []
    sites, mu, variance = Sites.none(0), mean, np.diag(covariance)
    while len(chosen) < most:
        is_open = (mu < 0) & (variance > LEAST_VARIANCE)
        is_open[chosen] = False
        if not is_open.any():
            break
        z = mu[is_open] / np.sqrt(variance[is_open])
        chosen.append(int(np.flatnonzero(is_open)[np.argmin(z)]))
        inner = covariance[np.ix_(chosen, chosen)]
        start = Sites(np.append(sites.precision, 0.0), np.append(sites.shift, 0.0))
        sites = propagate(mean[chosen], inner, noise=noise, start=start)
        factor, across = sites.factor(inner), covariance[chosen]
        mu = mean + sites.pull(mean[chosen], inner, factor) @ across
        half = solve_triangular(factor, np.sqrt(sites.precision)[:, None] * across)
        variance = np.diag(covariance) - np.einsum("ij,ij->j", half, half)
    return np.array(chosen, dtype=np.intp), sites
