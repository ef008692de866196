"""Gaussian processes over learning curves whose scores never fall (Agrell 2019).

At a few inputs, the sites, the slopes C over t are known to be nonnegative. Samples of C give means
and variances of predictions (Belakaria et al., equations 9 to 18):

    C ~ TN(m1, B1) with C >= 0 (eq. 10)     truncated_moments, in terms of Z with C = m1 + LZ
    B1 = LL', with sigma_v (eq. 13)         MonotoneProcess.of
    mu* + A (C - m1), A = B3 B1^-1          MonotoneProcess.predict_half

The computation uses the Cholesky factor L, because the covariance of slopes is nearly singular.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import root
from scipy.special import log_ndtr, ndtri_exp
from scipy.stats import qmc

from prefect_tune.optimizers.models.curve_kernel import CurveKernel
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.log_posterior import cholesky, solve_triangular
from prefect_tune.optimizers.space.vectors import ROUNDING, Array

_SAMPLES = 2048
"""Number of samples of the slopes, a power of two."""
_SITE_NOISE = 1e-6
"""Variance sigma_v^2 of the noise of slopes, relative to the mean variance of the slopes."""


def truncated_moments(mean: Array, factor: Array) -> tuple[Array, Array]:
    """Return mean, shape (s,), and covariance, shape (s, s), of Z ~ N(0, I) given mean + LZ >= 0.

    Z is sampled entry by entry from normal distributions that are truncated given the earlier
    entries, and shifted by minimax tilting (Botev 2017), so that the samples have nearly equal
    weights. The same random numbers are used in all calls. `factor` is L, shape (s, s).
    """
    s, scale = len(mean), np.diag(factor)
    L, least = np.tril(factor, -1) / scale[:, None], -mean / scale

    def tilting(both: Array) -> tuple[Array, Array]:
        """Return the gradient of Botev's psi by x and by the shift, and its Jacobian."""
        x, shift = both[:s], both[s:]
        z = least - shift - L @ x
        hazard = np.exp(-0.5 * z**2 - log_ndtr(-z)) / np.sqrt(2 * np.pi)
        curved = (hazard * (z - hazard))[:, None] * L
        mixed = curved - np.eye(s)
        both_shifts = np.diag(1 + hazard * (z - hazard))
        jacobian = np.block([[L.T @ curved, mixed.T], [mixed, both_shifts]])
        return np.append(L.T @ hazard - shift, shift - x + hazard), jacobian

    shift = root(tilting, np.zeros(2 * s), jac=True).x[s:]
    uniform = qmc.Sobol(s, rng=np.random.default_rng(0)).random(_SAMPLES)
    Z, log_weights = np.empty((_SAMPLES, s)), np.zeros(_SAMPLES)
    for k in range(s):
        log_mass = log_ndtr(shift[k] + Z[:, :k] @ L[k, :k] - least[k])
        Z[:, k] = shift[k] - ndtri_exp(log_mass + np.log1p(-uniform[:, k]))
        log_weights += log_mass + 0.5 * shift[k] ** 2 - shift[k] * Z[:, k]
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    center = weights @ Z
    return center, (weights * (Z - center).T) @ (Z - center)


def at_times(inputs: Array, column: int, times: Array) -> Array:
    """Return inputs, shape (m, d), repeated with each time in `column`: (m len(times), d)."""
    rows: Array = np.repeat(np.asarray(inputs, dtype=np.float64), len(times), axis=0)
    rows[:, column] = np.tile(times, len(inputs))
    return rows


@dataclass(frozen=True, slots=True)
class MonotoneProcess:
    """A posterior given nonnegative slopes, constructed by `of`.

    Without sites, the posterior equals `process`.

    Attributes:
        process: Process without the constraints on slopes.
        sites: Inputs of the s sites, shape (s, d).
        half_slopes: Matrix K^-1/2 Cov(observations, slopes at the sites), shape (n, s).
        weights: Vector h, shape (s,). The sites change means by Cov(f, slopes) h.
        whitening: Matrix W, shape (s, s). With c = Cov(slopes, f), the sites reduce the covariance
            of f by (Wc)'Wc.
    """

    process: GaussianProcess
    sites: Array
    half_slopes: Array
    weights: Array
    whitening: Array

    @classmethod
    def of(cls, process: GaussianProcess, sites: Array) -> "MonotoneProcess":
        """Return a process conditioned on nonnegative slopes at `sites`, inputs of shape (s, d).

        The process has one target, a `CurveKernel`, and a number or None as its mean. Raises
        TypeError if the process has a different kernel.
        """
        n, s = len(process.inputs), len(sites)
        if not s:
            return cls(process, sites, np.zeros((n, 0)), np.zeros(0), np.zeros((0, 0)))
        kernel, theta = _kernel_of(process), process.kernel_theta
        half = solve_triangular(
            process.factor, kernel.slope_covariance(theta, process.inputs, sites)
        )
        mean = half.T @ process.centered()[1][:, 0]
        covariance = kernel.slope_slope_covariance(theta, sites, sites) - half.T @ half
        factor = cholesky(covariance, _SITE_NOISE * float(np.mean(np.diag(covariance))))
        center, spread = truncated_moments(mean, factor)
        # The variance of Z falls from I to `spread`; sampling errors may make it rise slightly.
        reduction, axes = np.linalg.eigh(np.eye(s) - spread)
        roots = np.sqrt(np.maximum(reduction, 0.0))[:, None] * axes.T
        return cls(
            process,
            sites,
            half,
            weights=solve_triangular(factor, center, transposed=True),
            whitening=solve_triangular(factor, roots.T, transposed=True).T,
        )

    @property
    def scale(self) -> float:
        """Divisor of the process's targets."""
        return float(self.process.scale[0])

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return means and standard deviations without noise, shape (m,) each."""
        mean, half = self.predict_half(inputs)
        prior = self.process.kernel.variance(self.process.kernel_theta, inputs)
        variance = np.maximum(prior - np.einsum("ij,ij->j", half, half), ROUNDING * prior)
        return mean, self.scale * np.sqrt(variance)

    def predict_half(self, inputs: Array) -> tuple[Array, Array]:
        """Return means, shape (m,), and H, shape (n + s, m).

        H'H is subtracted from the prior covariance (see `GaussianProcess.half`).
        """
        inputs = np.asarray(inputs, dtype=np.float64)
        kernel, theta = _kernel_of(self.process), self.process.kernel_theta
        half = self.process.half(inputs)
        with_slopes = kernel.slope_covariance(theta, inputs, self.sites) - half.T @ self.half_slopes
        constant, centered = self.process.centered()
        latent = constant + half.T @ centered[:, 0] + with_slopes @ self.weights
        given = self.process.mean if isinstance(self.process.mean, int | float) else 0.0
        mean = self.process.offset + self.scale * latent + given
        return mean, np.vstack([half, self.whitening @ with_slopes.T])


def _kernel_of(process: GaussianProcess) -> CurveKernel:
    if not isinstance(process.kernel, CurveKernel):
        raise TypeError(f"slopes need a CurveKernel; got {type(process.kernel).__name__}")
    return process.kernel
