"""Expected improvement in log form, which ranks candidates even if the plain form is 0.0.

One variant handles a positive loss whose logarithm is predicted. Another variant adds a known
penalty to the predicted loss. Under constraints, the improvement is multiplied by the probability
that the candidate is feasible.

The joint improvement scores candidates that are chosen one after another, before any outcome is
observed (Wilson et al. 2018). Given simulated outcomes of the earlier candidates, the improvement
of the last candidate has a closed form. This joint improvement replaces the fully sampled q-EI of
BAPI (Belakaria et al. 2022, algorithm 4, line 3).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike
from scipy.special import erfcx, log_ndtr, ndtr, ndtri
from scipy.stats import qmc

from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.log_posterior import LEAST_VARIANCE
from prefect_tune.optimizers.space.vectors import Array

N_SOBOL = 256
"""Number of Sobol points: simulated outcomes, or candidates of a search."""
_LOG_ROOT_TAU = 0.5 * np.log(2 * np.pi)


def log_standard_improvement(u: ArrayLike) -> Array:
    """Return ln(phi(u) + u Phi(u)) for any u, after Ament et al. 2023 (eq. 9).

    The absolute error is at most 1e-7 for u from -9e4 to 5. In float64, phi(u) + u Phi(u) is
    exactly 0 below u = -38.58.
    """
    u = np.asarray(u, dtype=np.float64)
    # Each branch is evaluated only on arguments where it is defined.
    near, middle, far = np.maximum(u, -1.0), np.clip(u, -1e4, -1.0), np.minimum(u, -1e4)
    plain = np.log(np.exp(-(near**2) / 2 - _LOG_ROOT_TAU) + near * ndtr(near))
    scaled = np.log1p(middle * np.sqrt(np.pi / 2) * erfcx(-middle / np.sqrt(2)))
    tail = np.where(u < -1e4, -2 * np.log(-far), scaled)
    return np.where(u > -1, plain, -(np.minimum(u, -1.0) ** 2) / 2 - _LOG_ROOT_TAU + tail)


def log_expected_improvement(mean: Array, deviation: Array, best: float, xi: float = 0.0) -> Array:
    """Return the log expected improvement over `best - xi`, shape (n,)."""
    return np.log(deviation) + log_standard_improvement((best - xi - mean) / deviation)


def log_standard_improvement_slope(u: ArrayLike) -> Array:
    """Return the derivative of ln(phi(u) + u Phi(u)), Phi(u) / (phi(u) + u Phi(u)), for any u."""
    u = np.asarray(u, dtype=np.float64)
    near, middle, far = np.maximum(u, -1.0), np.clip(u, -1e4, -1.0), np.minimum(u, -1e4)
    plain = ndtr(near) / (np.exp(-(near**2) / 2 - _LOG_ROOT_TAU) + near * ndtr(near))
    c = np.sqrt(np.pi / 2) * erfcx(-middle / np.sqrt(2))
    return np.where(u > -1, plain, np.where(u < -1e4, -far, c / (1 + middle * c)))


def expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return the expected improvement, shape (n,), in units of the loss."""
    return np.exp(log_expected_improvement(mean, deviation, best))


def log_normal_improvement(mean: ArrayLike, deviation: ArrayLike, best: float) -> Array:
    """Return ln E[max(0, exp(best) - exp(Y))] for Y ~ N(mean, deviation^2), shape (n,).

    With v = (best - mean) / deviation, the value is (Hutter et al. 2009, "SPO and beyond", eq. 2)

        exp(best) Phi(v) - exp(mean + deviation^2 / 2) Phi(v - deviation)
        = exp(best) phi(v) (M(v) - M(v - deviation)),  M = Phi / phi,

    The first form is used for v > 1. For smaller v, the first form cancels or underflows, so the
    second form is used. Deviations are positive, and `best` is the logarithm of the lowest observed
    loss.
    """
    mean, deviation = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    v = (best - mean) / deviation
    # Each branch is evaluated only on arguments where it is defined.
    high, low = np.maximum(v, 1.0), np.minimum(v, 1.0)
    kept = log_ndtr(high - deviation) + deviation * (deviation / 2 - high)
    above = np.log(ndtr(high) - np.exp(kept))
    ratio = erfcx(-low / np.sqrt(2)) - erfcx((deviation - low) / np.sqrt(2))
    below = -(low**2) / 2 + np.log(np.maximum(ratio, 1e-300) / 2)
    return best + np.where(v > 1, above, below)


def log_feasibility(mean: Array, deviation: Array) -> Array:
    """Return the log probability that Y ~ N(mean, deviation^2) is at most 0, for any shape.

    The product of expected improvement and the probability of feasibility ranks candidates under
    constraints (Gardner et al. 2014).
    """
    return log_ndtr(-mean / deviation)


@dataclass(frozen=True, slots=True)
class FeasibleImprovement:
    """Log of the expected improvement times the probability of feasibility.

    The improvement is in units of the losses' spread.

    Attributes:
        process: Process with targets of shape (n, 1 + M): the loss, and M constraint values that
            are feasible if at most 0.
        best: Loss to improve on.
    """

    process: GaussianProcess
    best: float

    def score(self, inputs: Array, penalties: Array) -> Array:
        """Return the scores of inputs, shape (n, d), given known penalties, shape (n,)."""
        return self._score(*self.process.predict(inputs), penalties)[1]

    def score_with_gradient(self, inputs: Array, penalties: Array) -> tuple[Array, Array]:
        """Return `score` and its gradient by input, shape (n, d), with penalties held constant."""
        mean, deviation, by_mean, by_deviation = self.process.predict_with_gradient(inputs)
        u, score = self._score(mean, deviation, penalties)
        slope = np.exp(-(u**2) / 2 - _LOG_ROOT_TAU - log_ndtr(u)) / deviation
        slope[:, 0] = log_standard_improvement_slope(u[:, 0]) / deviation[:, 0]
        gradient = -(slope[:, :, None] * (by_mean + u[:, :, None] * by_deviation)).sum(axis=1)
        return score, gradient + by_deviation[:, 0] / deviation[:, [0]]

    def _score(self, mean: Array, deviation: Array, penalties: Array) -> tuple[Array, Array]:
        """Return the standardized margins, shape (n, 1 + M), and the scores, shape (n,)."""
        u = -mean / deviation
        u[:, 0] += (self.best - penalties) / deviation[:, 0]
        log_ei = np.log(deviation[:, 0] / self.process.scale[0]) + log_standard_improvement(u[:, 0])
        return u, log_ei + log_ndtr(u[:, 1:]).sum(axis=1)


def sobol_normals(n: int, d: int, rng: Generator) -> Array:
    """Return n scrambled Sobol points of d normals, shape (n, d); n is a power of two."""
    return ndtri(np.clip(qmc.Sobol(d, rng=rng).random(n), 1e-9, 1 - 1e-9))


class JointImprovement:
    """The expected improvement by one more candidate, given the candidates chosen so far.

    Args:
        mean: Mean scores of the candidates in units of their spread, shape (m,).
        variance: Variances of the scores, shape (m,).
        covariance: Function from a candidate's number to its covariances with all candidates, shape
            (m,).
        best: Score to improve on.
        normals: Standard normals for simulating up to k choices, shape (draws, k).
    """

    def __init__(
        self,
        mean: Array,
        variance: Array,
        covariance: Callable[[int], Array],
        best: float,
        normals: Array,
    ) -> None:
        self._mean, self.variance, self._covariance = mean, variance.copy(), covariance
        self._normals = normals
        self._shift = np.zeros((len(normals), len(mean)))
        self._best = np.full(len(normals), best)
        self._rows: list[Array] = []

    def gains(self) -> Array:
        """Return the mean improvement that each candidate adds to the choices, shape (m,)."""
        deviation = np.sqrt(np.maximum(self.variance, LEAST_VARIANCE))
        n = len(self._normals) if self._rows else 1  # before the first choice, all draws agree
        u = (self._mean + self._shift[:n] - self._best[:n, None]) / deviation
        density = np.exp(-0.5 * u * u) / np.sqrt(2 * np.pi)
        return (deviation * (u * ndtr(u) + density)).mean(axis=0)

    def covariance(self, number: int) -> Array:
        """Return a candidate's covariances with all others, given the choices, shape (m,)."""
        column = self._covariance(number).astype(np.float64)
        for row in self._rows:
            column = column - row * row[number]
        return column

    def choose(self, number: int) -> None:
        """Choose a candidate. Later gains are relative to the choices made so far."""
        column = self.covariance(number)
        row = column / np.sqrt(max(column[number], LEAST_VARIANCE))
        z = self._normals[:, len(self._rows)]
        self._rows.append(row)
        self._shift += np.outer(z, row)
        self.variance = self.variance - row**2
        self._best = np.maximum(self._best, self._mean[number] + self._shift[:, number])
