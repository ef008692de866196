"""A Gaussian vector that is known not to be negative, by expectation propagation.

Each truth "entry i is at least 0" becomes a site: a Gaussian factor of entry i alone, of precision
tau_i and shift nu_i, so that what follows stays Gaussian. One entry is exact; of many that hang
together means are right to a tenth of a deviation, and the probability is too low (Minka 2001;
Cunningham, Hennig and Lacoste-Julien 2011).
"""

from dataclasses import dataclass, replace
from math import pi, sqrt

import numpy as np
from scipy.special import erfcx, log_ndtr

from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.surrogates.log_posterior import cholesky, solve_triangular

_MAX_SWEEPS = 30
_TOLERANCE = 1e-4
_SATISFIED = 8.0
"""Deviations above 0 from which on a truth says nothing new."""
LEAST_VARIANCE = 1e-14
"""Of an entry that is known already."""


@dataclass(frozen=True, slots=True)
class Sites:
    """Factors that say what is true: exp(nu_i x_i - tau_i x_i^2 / 2).

    Attributes:
        precision: tau, shape (s,), at least 0; 0 where a truth says nothing new.
        shift: nu, shape (s,).
        log_probability: Ln of the probability that no entry is negative.
        n_sweeps: How often each site was updated.
    """

    precision: Array
    shift: Array
    log_probability: float = 0.0
    n_sweeps: int = 0

    def __post_init__(self) -> None:
        if self.precision.ndim != 1 or self.precision.shape != self.shift.shape:
            raise ValueError(
                "precisions and shifts of s sites have shape (s,); got "
                f"{self.precision.shape} and {self.shift.shape}"
            )

    @classmethod
    def none(cls, n: int) -> "Sites":
        """Return n sites that say nothing."""
        return cls(np.zeros(n), np.zeros(n))

    def and_also(self, others: "Sites") -> "Sites":
        """Return these and the others, which were found with these known."""
        return Sites(
            np.append(self.precision, others.precision),
            np.append(self.shift, others.shift),
            self.log_probability + others.log_probability,
            others.n_sweeps,
        )

    def factor(self, covariance: Array) -> Array:
        """Return L with LL' = I + Q covariance Q and Q = diag(sqrt(tau)), shape (s, s)."""
        root = np.sqrt(self.precision)
        return cholesky(root[:, None] * covariance * root, 1.0)

    def pull(self, mean: Array, covariance: Array, factor: Array) -> Array:
        """Return h, shape (s,): what is correlated by b with the vector moves by b'h."""
        root = np.sqrt(self.precision)
        gap = self.shift - self.precision * mean
        moved = solve_triangular(factor, root * (covariance @ gap))
        return gap - root * solve_triangular(factor, moved, transposed=True)


def propagate(
    mean: Array, covariance: Array, *, noise: float | None = None, start: Sites | None = None
) -> Sites:
    """Return the sites of N(mean, covariance) truncated to what is at least 0.

    Args:
        mean: Shape (s,).
        covariance: Shape (s, s), which may be nearly singular.
        noise: Variance of the noise with which truths are seen; 1e-6 of the mean diagonal by
            default.
        start: Sites to begin with, such as those of a similar vector.

    Raises:
        ValueError: If shapes do not agree or a value is not finite.
    """
    s = len(mean)
    start = start or Sites.none(s)
    _check(mean, covariance, start)
    if not s:
        return start
    if noise is None:
        noise = 1e-6 * float(np.trace(covariance)) / s
    tau, nu = start.precision.copy(), start.shift.copy()
    n_sweeps, step = 0, np.inf
    while step >= _TOLERANCE and n_sweeps < _MAX_SWEEPS:
        n_sweeps += 1
        moments = _moments(mean, covariance, tau, nu)
        if not np.isfinite(moments[0]).all():
            # Sites of another vector may fit this one badly.
            tau, nu = np.zeros(s), np.zeros(s)
            moments = mean.copy(), covariance.copy()
        step = _swept(tau, nu, *moments, noise)
    found = Sites(tau, nu, n_sweeps=n_sweeps)
    return replace(found, log_probability=_log_probability(mean, covariance, found, noise))


def truncation_ratio(z: float) -> tuple[float, float]:
    """Return r = phi(z) / Phi(z) and 1 - r (z + r), the variance left, also far below 0."""
    if z > -12.0:
        ratio = sqrt(2 / pi) / float(erfcx(-z / sqrt(2.0)))
        return ratio, 1.0 - ratio * (z + ratio)
    # The difference cancels here; a series in 1 / z does not.
    u = -z
    return u + 1 / u - 2 / u**3 + 10 / u**5, 1 / u**2 - 6 / u**4 + 50 / u**6


def _moments(mean: Array, covariance: Array, tau: Array, nu: Array) -> tuple[Array, Array]:
    """Return mean and covariance with the sites."""
    if not tau.any():
        return mean + covariance @ nu, covariance.copy()
    root = np.sqrt(tau)
    scaled = root[:, None] * covariance
    half = solve_triangular(cholesky(scaled * root, 1.0), scaled)
    S = covariance - half.T @ half
    return mean + S @ (nu - tau * mean), S


def _swept(tau: Array, nu: Array, mu: Array, S: Array, noise: float) -> float:
    """Update all sites and moments in place; return the largest step of a mean in deviations."""
    largest = 0.0
    for i in range(len(tau)):
        variance, old, old_shift = float(S[i, i]), float(tau[i]), float(nu[i])
        if variance <= LEAST_VARIANCE or 1 - old * variance <= 1e-12:
            continue
        of_cavity = variance / (1 - old * variance)
        centre = of_cavity * (float(mu[i]) / variance - old_shift)
        new, new_shift = _matched(centre, of_cavity, noise)
        d, e = new - old, new_shift - old_shift
        shrinkage = 1 + d * variance
        if (d == 0.0 and e == 0.0) or shrinkage <= 1e-10:
            continue
        step = (e - d * float(mu[i])) / shrinkage
        column = S[i].copy()
        mu += step * column
        S -= np.multiply.outer((d / shrinkage) * column, column)
        tau[i], nu[i] = new, new_shift
        largest = max(largest, abs(step) * sqrt(variance))
    return largest


def _matched(centre: float, variance: float, noise: float) -> tuple[float, float]:
    """Return the site whose product with N(centre, variance) has the moments of the truncation."""
    total = variance + noise
    z = centre / sqrt(total)
    if z > _SATISFIED:
        return 0.0, 0.0
    ratio, left = truncation_ratio(z)
    gain, kappa = ratio / sqrt(total), (1 - left) / total
    # 1 - kappa variance, without the difference that cancels.
    left += (1 - left) * noise / total
    if left < 1e-12:
        tau = 1e12 * kappa
        return tau, centre * tau + 1e12 * gain
    return max(kappa / left, 0.0), (gain + kappa * centre) / left


def _log_probability(mean: Array, covariance: Array, sites: Sites, noise: float) -> float:
    """Return ln of the probability of all truths (eq. 19)."""
    tau, nu = sites.precision, sites.shift
    mu, S = _moments(mean, covariance, tau, nu)
    variance = np.diag(S)
    seen = (variance > LEAST_VARIANCE) & (1 - tau * variance > 1e-12)
    active = tau > 0
    of_cavity = variance[seen] / (1 - tau[seen] * variance[seen])
    centre = of_cavity * (mu[seen] / variance[seen] - nu[seen])
    total = float(log_ndtr(centre / np.sqrt(of_cavity + noise)).sum())
    held = active[seen]
    spread = 1 + tau[seen][held] * of_cavity[held]
    gap = (tau[seen] * centre - nu[seen])[held] ** 2 / tau[seen][held]
    total += 0.5 * float(np.sum(np.log(spread) + gap / spread))
    root = np.sqrt(tau)
    L = cholesky(root[:, None] * covariance * root, 1.0)
    sides = np.where(active, root * mean - nu / np.where(active, root, 1.0), 0.0)
    whitened = solve_triangular(L, sides[:, None])
    return total - float(np.log(np.diag(L)).sum()) - 0.5 * float(np.sum(whitened**2))


def _check(mean: Array, covariance: Array, start: Sites) -> None:
    s = len(mean)
    if mean.shape != (s,) or covariance.shape != (s, s) or len(start.precision) != s:
        raise ValueError(
            f"a mean of shape (s,) has a covariance of (s, s) and s sites; got {mean.shape}, "
            f"{covariance.shape} and {len(start.precision)}"
        )
    if not (np.isfinite(mean).all() and np.isfinite(covariance).all()):
        raise ValueError("a truncated vector has a finite mean and covariance; got one without")
