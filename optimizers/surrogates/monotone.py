"""Gaussian processes over learning curves that are known not to fall.

Slopes by t at a few places, the sites, are known to be at least 0. Conditioning on that is done by
expectation propagation (`truncation`), so the posterior stays Gaussian (Agrell 2019; Belakaria et
al., eq. 9 to 18), in Cholesky form: the covariance of slopes, nearly singular, is never inverted.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.surrogates.log_posterior import solve_triangular
from prefect_tune.optimizers.surrogates.truncation import LEAST_VARIANCE, Sites, propagate

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


@dataclass(frozen=True, slots=True)
class MonotoneProcess:
    """A posterior given slopes of at least 0; `of` makes it. Without sites, the process itself.

    Attributes:
        process: Of one target, with a `CurveKernel` and a mean that is a number or None.
        sites: Rows of inputs, each with its t, shape (s, d).
        beliefs: What the slopes' signs say.
        half_slopes: L^-1 Cov(observations, slopes at the sites), shape (n, s).
        slope_mean: Of the slopes at the sites before their signs are known, shape (s,).
        slope_covariance: B, likewise, shape (s, s).
        factor: L_E with L_E L_E' = I + Q B Q and Q = diag(sqrt(tau)), shape (s, s).
        weights: h, shape (s,): means move by Cov(f, slopes) h.
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
        cls,
        process: GaussianProcess,
        sites: Array,
        *,
        only_falling: bool = True,
        noise: float | None = None,
    ) -> "MonotoneProcess":
        """Condition a process on slopes of at least 0.

        Args:
            process: Of one target, with a `CurveKernel` and a mean that is a number or None.
            sites: Rows of inputs, each with its t, shape (s, d).
            only_falling: Whether only those are taken where the mean falls otherwise; see
                `needed_sites`. Sites at all of them push flat curves up.
            noise: Variance with which slopes are seen; see `propagate`.

        Raises:
            TypeError: If the kernel is not one of curves.
            ValueError: If there are several targets or the mean is a function of the inputs.
        """
        _kernel_of(process)
        if len(process.scale) != 1 or callable(process.mean):
            raise ValueError(
                "curves that do not fall are of one target and a mean that is a number; got "
                f"{len(process.scale)} targets and the mean {process.mean}"
            )
        n, d = process.inputs.shape
        none, square = np.zeros(0), np.zeros((0, 0))
        plain = cls(
            process=process,
            sites=np.zeros((0, d)),
            beliefs=Sites.none(0),
            half_slopes=np.zeros((n, 0)),
            slope_mean=none,
            slope_covariance=square,
            factor=square,
            weights=none,
        )
        return plain.with_sites(sites, only_falling=only_falling, noise=noise)

    def with_sites(
        self, more: Array, *, only_falling: bool = True, noise: float | None = None
    ) -> "MonotoneProcess":
        """Return it with further sites; what the present ones say stays as it is.

        The arguments are those of `of`.
        """
        more = np.asarray(more, dtype=np.float64)
        if not len(more):
            return self
        kernel, theta = _kernel_of(self.process), self.process.kernel_theta
        half, mean, across = self._slopes_of(more)
        within = kernel.slope_slope_covariance(theta, more, more) - half.T @ half
        # What the present sites say is known already, so the new ones see what is left.
        whitened = self._whitened(across)
        seen = mean + across @ self.weights, within - whitened.T @ whitened
        taken = np.arange(len(more))
        if only_falling:
            taken, told = needed_sites(*seen, noise=noise)
        else:
            told = propagate(*seen, noise=noise)
        if not len(taken):
            return self
        slope_mean = np.append(self.slope_mean, mean[taken])
        inner, across = within[np.ix_(taken, taken)], across[taken]
        covariance = np.block([[self.slope_covariance, across.T], [across, inner]])
        beliefs = self.beliefs.and_also(told)
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
        """The number that targets were divided by."""
        return float(self.process.scale[0])

    def noise_variance(self, inputs: Array) -> Array:
        """Return the noise of rows as a share of the targets' variance, shape (m,)."""
        return self.process.noise_variance(inputs)

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return means and deviations of the function without noise, shape (m,) each."""
        mean, half = self.predict_half(inputs)
        prior = self.process.kernel.variance(self.process.kernel_theta, inputs)
        variance = np.maximum(prior - np.einsum("ij,ij->j", half, half), 1e-12 * prior)
        return mean, self.scale * np.sqrt(variance)

    def half(self, inputs: Array) -> Array:
        """Return H, shape (n + s, m), with which covariances are k(a, b) - H(a)'H(b)."""
        return self.predict_half(inputs)[1]

    def covariance(self, a: Array, b: Array) -> Array:
        """Return the posterior covariance of the function between rows, (m, k), standardised."""
        prior = self.process.kernel.covariance(self.process.kernel_theta, a, b)
        return prior - self.half(a).T @ self.half(b)

    def predict_half(self, inputs: Array) -> tuple[Array, Array]:
        """Return means, (m,), and what `half` returns, together at the price of one."""
        inputs = np.asarray(inputs, dtype=np.float64)
        kernel, theta = _kernel_of(self.process), self.process.kernel_theta
        half = self.process.half(inputs)
        with_slopes = kernel.slope_covariance(theta, inputs, self.sites) - half.T @ self.half_slopes
        constant, centred = self.process.centred()
        latent = constant + half.T @ centred[:, 0] + with_slopes @ self.weights
        given = self.process.mean if isinstance(self.process.mean, int | float) else 0.0
        mean = self.process.offset + self.scale * latent + given
        return mean, np.vstack([half, self._whitened(with_slopes)])

    def slopes(self, inputs: Array) -> tuple[Array, Array]:
        """Return means and deviations of the slopes by t at rows, shape (m,) each."""
        inputs = np.asarray(inputs, dtype=np.float64)
        kernel, theta = _kernel_of(self.process), self.process.kernel_theta
        half, mean, across = self._slopes_of(inputs)
        mean = mean + across @ self.weights
        whitened = np.vstack([half, self._whitened(across)])
        prior = kernel.slope_variance(theta, inputs)
        variance = np.maximum(prior - np.einsum("ij,ij->j", whitened, whitened), 1e-12 * prior)
        return self.scale * mean, self.scale * np.sqrt(variance)

    def _slopes_of(self, inputs: Array) -> tuple[Array, Array, Array]:
        """Of slopes given the data: L^-1 Cov(data, .), mean, covariance with those at the sites."""
        kernel, theta = _kernel_of(self.process), self.process.kernel_theta
        known = kernel.slope_covariance(theta, self.process.inputs, inputs)
        half = solve_triangular(self.process.factor, known)
        _, centred = self.process.centred()
        across = kernel.slope_slope_covariance(theta, inputs, self.sites)
        return half, half.T @ centred[:, 0], across - half.T @ self.half_slopes

    def _whitened(self, across: Array) -> Array:
        """Return L_E^-1 Q of covariances with the slopes at the sites, (m, s), shape (s, m)."""
        if not len(self.sites):
            return across.T  # LAPACK refuses systems of no equations
        root = np.sqrt(self.beliefs.precision)
        return solve_triangular(self.factor, root[:, None] * across.T)


def _kernel_of(process: GaussianProcess) -> CurveKernel:
    if not isinstance(process.kernel, CurveKernel):
        raise TypeError(f"slopes by t are those of a CurveKernel; got {type(process.kernel)}")
    return process.kernel
