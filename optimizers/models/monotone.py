"""Gaussian processes over learning curves whose scores never fall.

At a few inputs, slopes over t are known to be nonnegative. Expectation propagation conditions on
the signs and keeps the posterior Gaussian (Agrell 2019; Belakaria et al., eq. 9 to 18). The
computation uses Cholesky factors, because the covariance of slopes is nearly singular.

A site represents the constraint that entry i of a Gaussian vector is nonnegative. The site is a
Gaussian factor of entry i with precision tau_i and shift nu_i. For a single entry, the site is
exact. For many dependent entries, means are accurate to a tenth of a standard deviation, but the
estimated probability that all entries are nonnegative is too low (Minka 2001; Cunningham, Hennig
and Lacoste-Julien 2011).
"""

from dataclasses import dataclass, replace
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx

from prefect_tune.optimizers.models.curve_kernel import CurveKernel
from prefect_tune.optimizers.models.gaussian_process import GaussianProcess
from prefect_tune.optimizers.models.log_posterior import ROUNDING, cholesky, solve_triangular
from prefect_tune.optimizers.space.vectors import Array

_MAX_SWEEPS = 30
_TOLERANCE = 1e-4
_SATISFIED = 8.0
"""Number of standard deviations above 0 at which knowing the sign adds no information."""


@dataclass(frozen=True, slots=True)
class Sites:
    """Sites exp(nu_i x_i - tau_i x_i^2 / 2) for s entries.

    Attributes:
        precision: Nonnegative precisions tau, 0 for a site without information, shape (s,).
        shift: Shifts nu, shape (s,).
    """

    precision: Array
    shift: Array

    @classmethod
    def none(cls, n: int) -> "Sites":
        """Return n sites without information."""
        return cls(np.zeros(n), np.zeros(n))

    def joined(self, others: "Sites") -> "Sites":
        """Return these sites followed by other sites."""
        return Sites(
            np.append(self.precision, others.precision), np.append(self.shift, others.shift)
        )

    def factor(self, covariance: Array) -> Array:
        """Return L, shape (s, s), with LL' = I + Q covariance Q and Q = diag(sqrt(tau))."""
        root = np.sqrt(self.precision)
        return cholesky(root[:, None] * covariance * root, 1.0)

    def pull(self, mean: Array, covariance: Array, factor: Array) -> Array:
        """Return h, shape (s,).

        The sites change the mean of a variable by b'h, where b, shape (s,), is the variable's
        covariance with the vector. The argument `factor` is the output of the method `factor`.
        """
        root = np.sqrt(self.precision)
        gap = self.shift - self.precision * mean
        moved = solve_triangular(factor, root * (covariance @ gap))
        return gap - root * solve_triangular(factor, moved, transposed=True)


def propagate(mean: Array, covariance: Array, *, start: Sites | None = None) -> Sites:
    """Return the sites that approximate N(mean, covariance) truncated to nonnegative entries.

    The covariance, shape (s, s), may be nearly singular. For stability, the truncation is smoothed
    with a variance of 1e-6 of the mean diagonal. `start` may contain the sites of a similar vector.
    """
    s = len(mean)
    start = start or Sites.none(s)
    noise = 1e-6 * float(np.trace(covariance)) / max(s, 1)
    tau, nu = start.precision.copy(), start.shift.copy()
    for _ in range(_MAX_SWEEPS):
        S: Array = covariance.copy()
        mu: Array = mean + covariance @ nu
        if tau.any():
            root = np.sqrt(tau)
            scaled = root[:, None] * covariance
            half = solve_triangular(cholesky(scaled * root, 1.0), scaled)
            S = covariance - half.T @ half
            mu = mean + S @ (nu - tau * mean)
        if not np.isfinite(mu).all():
            # The sites in `start` may be a poor fit for this vector.
            tau, nu = np.zeros(s), np.zeros(s)
            mu, S = mean.copy(), covariance.copy()
        largest = 0.0  # largest change of a mean, in standard deviations
        for i in range(s):
            variance, old, old_shift = float(S[i, i]), float(tau[i]), float(nu[i])
            if variance <= ROUNDING or 1 - old * variance <= ROUNDING:
                continue
            of_cavity = variance / (1 - old * variance)
            center = of_cavity * (float(mu[i]) / variance - old_shift)
            total = of_cavity + noise
            z = center / sqrt(total)
            new = new_shift = 0.0
            if z <= _SATISFIED:
                # The site times N(center, of_cavity) has the moments of the truncated distribution.
                ratio, left = truncation_ratio(z)
                gain, kappa = ratio / sqrt(total), (1 - left) / total
                # 1 - kappa of_cavity, written to avoid cancellation.
                left = max(left + (1 - left) * noise / total, ROUNDING)
                new, new_shift = max(kappa / left, 0.0), (gain + kappa * center) / left
            d, e = new - old, new_shift - old_shift
            shrinkage = 1 + d * variance
            if (d == 0.0 and e == 0.0) or shrinkage <= ROUNDING:
                continue
            step = (e - d * float(mu[i])) / shrinkage
            column = S[i].copy()
            mu += step * column
            S -= np.multiply.outer((d / shrinkage) * column, column)
            tau[i], nu[i] = new, new_shift
            largest = max(largest, abs(step) * sqrt(variance))
        if largest < _TOLERANCE:
            break
    return Sites(tau, nu)


def truncation_ratio(z: float) -> tuple[float, float]:
    """Return r = phi(z) / Phi(z), and 1 - r (z + r), the fraction of variance left by truncation.

    Both values are also accurate for very negative z.
    """
    if z > -12.0:
        ratio = sqrt(2 / pi) / float(erfcx(-z / sqrt(2.0)))
        return ratio, 1.0 - ratio * (z + ratio)
    # For very negative z, the difference cancels, but a series in 1 / z is accurate.
    u = -z
    return u + 1 / u - 2 / u**3 + 10 / u**5, 1 / u**2 - 6 / u**4 + 50 / u**6


def site_times(t_max: int, n: int = 2) -> Array:
    """Return the times t of a curve's sites: n geometrically spaced times from 1 / t_max to 1."""
    return np.geomspace(1 / t_max, 1.0, n)


def at_times(inputs: Array, column: int, times: Array) -> Array:
    """Return inputs, shape (m, d), repeated with each time in `column`: (m len(times), d)."""
    rows: Array = np.repeat(np.asarray(inputs, dtype=np.float64), len(times), axis=0)
    rows[:, column] = np.tile(times, len(inputs))
    return rows


def needed_sites(mean: Array, covariance: Array) -> tuple[NDArray[np.intp], Sites]:
    """Return the indices of the slopes that need a site, and the sites.

    A site is added for the slope most likely to be negative, until no slope has a negative mean.
    Other slopes get no site, because many nearly certain sites push each other upward. `mean`,
    shape (s,), and `covariance`, shape (s, s), describe the slopes.
    """
    chosen: list[int] = []
    sites, mu, variance = Sites.none(0), mean, np.diag(covariance)
    while True:
        is_open = (mu < 0) & (variance > ROUNDING)
        is_open[chosen] = False
        if not is_open.any():
            return np.array(chosen, dtype=np.intp), sites
        z = mu[is_open] / np.sqrt(variance[is_open])
        chosen.append(int(np.flatnonzero(is_open)[np.argmin(z)]))
        inner = covariance[np.ix_(chosen, chosen)]
        sites = propagate(mean[chosen], inner, start=sites.joined(Sites.none(1)))
        factor, across = sites.factor(inner), covariance[chosen]
        mu = mean + sites.pull(mean[chosen], inner, factor) @ across
        half = solve_triangular(factor, np.sqrt(sites.precision)[:, None] * across)
        variance = np.diag(covariance) - np.einsum("ij,ij->j", half, half)


@dataclass(frozen=True, slots=True)
class MonotoneProcess:
    """A posterior given nonnegative slopes, constructed by `of`.

    Without sites, the posterior equals `process`.

    Attributes:
        process: Process without the constraints on slopes.
        sites: Inputs of the s sites, shape (s, d).
        beliefs: Sites of expectation propagation.
        half_slopes: Matrix L^-1 Cov(observations, slopes at the sites), shape (n, s).
        slope_mean: Means of the slopes under `process`, shape (s,).
        slope_covariance: Covariance B of the slopes under `process`, shape (s, s).
        factor: Factor L_E with L_E L_E' = I + Q B Q and Q = diag(sqrt(tau)), shape (s, s).
        weights: Vector h, shape (s,). The sites change means by Cov(f, slopes) h.
    """

    process: GaussianProcess
    sites: Array
    beliefs: Sites
    half_slopes: Array
    slope_mean: Array
    slope_covariance: Array
    factor: Array
    weights: Array

    @classmethod
    def of(
        cls, process: GaussianProcess, sites: Array, *, only_falling: bool = True
    ) -> "MonotoneProcess":
        """Return a process conditioned on nonnegative slopes at `sites`, inputs of shape (s, d).

        The process has one target, a `CurveKernel`, and a number or None as its mean.
        `only_falling` uses only the sites chosen by `needed_sites`, because using all sites pushes
        flat curves upward. Raises TypeError if the process has a different kernel.
        """
        n, d = process.inputs.shape
        sites_and_slopes = np.zeros((0, d)), Sites.none(0), np.zeros((n, 0)), np.zeros(0)
        plain = cls(process, *sites_and_slopes, np.zeros((0, 0)), np.zeros((0, 0)), np.zeros(0))
        return plain.with_sites(sites, only_falling=only_falling)

    def with_sites(self, more: Array, *, only_falling: bool = True) -> "MonotoneProcess":
        """Return the process with additional sites. Existing sites stay unchanged."""
        more = np.asarray(more, dtype=np.float64)
        if not len(more):
            return self
        kernel, theta = _kernel_of(self.process), self.process.kernel_theta
        known = kernel.slope_covariance(theta, self.process.inputs, more)
        half = solve_triangular(self.process.factor, known)
        mean = half.T @ self.process.centered()[1][:, 0]
        across = kernel.slope_slope_covariance(theta, more, self.sites) - half.T @ self.half_slopes
        within = kernel.slope_slope_covariance(theta, more, more) - half.T @ half
        # The new slopes are conditioned on the existing sites.
        whitened = self._whitened(across)
        seen = mean + across @ self.weights, within - whitened.T @ whitened
        taken = np.arange(len(more))
        if only_falling:
            taken, told = needed_sites(*seen)
        else:
            told = propagate(*seen)
        if not len(taken):
            return self
        slope_mean = np.append(self.slope_mean, mean[taken])
        inner, across = within[np.ix_(taken, taken)], across[taken]
        covariance = np.block([[self.slope_covariance, across.T], [across, inner]])
        beliefs = self.beliefs.joined(told)
        factor = beliefs.factor(covariance)
        return replace(
            self,
            sites=np.vstack([self.sites, more[taken]]),
            beliefs=beliefs,
            half_slopes=np.hstack([self.half_slopes, half[:, taken]]),
            slope_mean=slope_mean,
            slope_covariance=covariance,
            factor=factor,
            weights=beliefs.pull(slope_mean, covariance, factor),
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
        return mean, np.vstack([half, self._whitened(with_slopes)])

    def _whitened(self, across: Array) -> Array:
        """Return L_E^-1 Q C', shape (s, m), for covariances C with the slopes, shape (m, s)."""
        if not len(self.sites):
            return across.T  # LAPACK rejects systems without equations
        root = np.sqrt(self.beliefs.precision)
        return solve_triangular(self.factor, root[:, None] * across.T)


def _kernel_of(process: GaussianProcess) -> CurveKernel:
    if not isinstance(process.kernel, CurveKernel):
        raise TypeError(f"slopes need a CurveKernel; got {type(process.kernel).__name__}")
    return process.kernel
