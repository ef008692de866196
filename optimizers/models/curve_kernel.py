"""The covariance of learning curves: a kernel of configurations times a kernel of time.

f(x, t) is the score of a configuration x after a fraction t in (0, 1] of the epochs. The slope
df/dt is also Gaussian, so kernels of t provide derivatives (Belakaria et al., eq. 20 to 24).
"""

from collections.abc import Callable

import numpy as np

from prefect_tune.optimizers.models.kernels import Kernel, Parameter, Pullback
from prefect_tune.optimizers.space.vectors import Array

_VARIANCE = 0.0, 1.5, 1e-3, 50.0
"""Prior and bounds of the logarithm of a part's variance."""


class Decay:
    """The kernel k(t, u) = A + C v^-alpha of decaying curves, v = 1 + (t + u) / beta (eq. 22).

    The parameters are the logarithms of A (variance of the level), C (variance of the decaying
    part), alpha and beta. `has_tail` keeps alpha near 1, so that a steep start does not imply a
    flat end.
    """

    def __init__(self, *, has_tail: bool = False) -> None:
        prior, bounds = ((0.0, 0.35), (0.3, 1.5)) if has_tail else ((0.0, 0.7), (0.1, 5.0))
        self.parameters = (
            Parameter.of_log("ln of the level's variance", *_VARIANCE),
            Parameter.of_log("ln of the varying part's variance", *_VARIANCE),
            Parameter.of_log("ln of alpha", *prior, *bounds),
            Parameter.of_log("ln of beta", float(np.log(0.3)), 1.0, 0.02, 10.0),
        )

    def covariance(self, theta: Array, t: Array, u: Array) -> Array:
        """Return k(t, u), shape (n, m), for t, shape (n,), and u, shape (m,)."""
        level, varying, alpha, beta = np.exp(theta)
        return level + varying * (1 + np.add.outer(t, u) / beta) ** -alpha

    def variance(self, theta: Array, t: Array) -> Array:
        """Return k(t, t) for each t, shape (n,)."""
        level, varying, alpha, beta = np.exp(theta)
        return level + varying * (1 + 2 * t / beta) ** -alpha

    def slope(self, theta: Array, t: Array, u: Array) -> Array:
        """Return dk/du, shape (n, m) (eq. 23)."""
        _, varying, alpha, beta = np.exp(theta)
        v = 1 + np.add.outer(t, u) / beta
        return -varying * alpha / beta * v ** (-alpha - 1)

    def slope_slope(self, theta: Array, t: Array, u: Array) -> Array:
        """Return d^2 k / dt du, shape (n, m) (eq. 24)."""
        _, varying, alpha, beta = np.exp(theta)
        v = 1 + np.add.outer(t, u) / beta
        return varying * alpha * (alpha + 1) / beta**2 * v ** (-alpha - 2)

    def pullback(self, theta: Array, t: Array) -> tuple[Array, Callable[[Array], Array]]:
        """Return K = k(t, t), shape (n, n), and the pullback of theta.

        The pullback maps W, shape (n, n), to sum_ij W_ij dK_ij/dtheta, shape (4,).
        """
        level, varying, alpha, beta = np.exp(theta)
        sums = np.add.outer(t, t) / beta
        log_v = np.log1p(sums)
        decayed = varying * np.exp(-alpha * log_v)

        def pull(weights: Array) -> Array:
            weighted = weights * decayed
            by_alpha = -alpha * np.sum(weighted * log_v)
            by_beta = alpha * np.sum(weighted * sums / (1 + sums))
            return np.array([level * weights.sum(), weighted.sum(), by_alpha, by_beta])

        return level + decayed, pull


class CurveKernel(Kernel):
    """The kernel k(x, x') k_t(t, t'): `within` is k, `of_time` is k_t, and `column` contains t."""

    def __init__(self, within: Kernel, column: int, of_time: Decay) -> None:
        self.within, self.column, self.of_time = within, column, of_time
        self.parameters = (*within.parameters, *of_time.parameters)
        self._n_within = len(within.parameters)

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        K = self.of_time.covariance(theta[self._n_within :], self._t(a), self._t(b))
        return K * self.between(theta, a, b)

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        diagonal = self.of_time.variance(theta[self._n_within :], self._t(inputs))
        return diagonal * self.within.variance(theta[: self._n_within], inputs)

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        of_time, pull_time = self.of_time.pullback(theta[self._n_within :], self._t(inputs))
        within, pull = self.within.pullback(theta[: self._n_within], inputs)
        return within * of_time, lambda weights: np.append(
            pull(weights * of_time), pull_time(weights * within)
        )

    def between(self, theta: Array, a: Array, b: Array) -> Array:
        """Return k(x, x') alone, shape (n, m)."""
        return self.within.covariance(theta[: self._n_within], a, b)

    def slope_covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """Return Cov(f(a), df(b)/dt), shape (n, m)."""
        slope = self.of_time.slope(theta[self._n_within :], self._t(a), self._t(b))
        return slope * self.between(theta, a, b)

    def slope_slope_covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """Return Cov(df(a)/dt, df(b)/dt), shape (n, m)."""
        second = self.of_time.slope_slope(theta[self._n_within :], self._t(a), self._t(b))
        return second * self.between(theta, a, b)

    def _t(self, inputs: Array) -> Array:
        return inputs[:, self.column]
