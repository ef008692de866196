"""Exact Gaussian processes over one set of inputs, for one or more targets.

All targets share the kernel, noise and factorization. The likelihoods of the targets are averaged,
so that nearly equal targets do not outweigh the priors. Inputs may be repeated, because the noise
is at least 1e-6 of a target's variance. If rounding errors spoil the factorization, jitter of up to
1e-4 of the mean diagonal is added. For constant targets, theta keeps its starting value.

Samplers of theta use `log_posterior_value` for the density, and `given` for the process.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.random import Generator
from scipy.optimize import minimize

from prefect_tune.optimizers.models.kernels import Kernel, Noise
from prefect_tune.optimizers.models.log_posterior import (
    cholesky,
    log_posterior,
    solve_triangular,
)
from prefect_tune.optimizers.space.vectors import ROUNDING, Array

Mean = float | Callable[[Array], Array] | None
"""Prior mean: a number, a function from inputs, shape (n, d), to means, shape (n,), or None for a
constant by generalized least squares."""

FIT_ITERATIONS = 20


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """A posterior over functions, constructed by `fit` or `given`.

    Attributes:
        kernel: Kernel with p parameters.
        noise: Noise with q parameters.
        theta: Parameters of the kernel and of the noise, shape (p + q,).
        inputs: Inputs of the n observations, shape (n, d).
        standardized: Standardized targets (targets - mean - offset) / scale, shape (n, t).
        offset: Mean of each target, shape (t,); 0 with a given mean.
        scale: Divisor of each target, shape (t,).
        mean: Given prior mean; None for a constant estimated by generalized least squares.
        factor: Lower triangular matrix L with LL' = K + noise, shape (n, n).
        whitened: Whitened targets L^-1 [1, standardized], shape (n, 1 + t).
        is_single: Whether the targets were given as a vector, in which case predictions are also
            vectors.
    """

    kernel: Kernel
    noise: Noise
    theta: Array
    inputs: Array
    standardized: Array
    offset: Array
    scale: Array
    mean: Mean
    factor: Array
    whitened: Array
    is_single: bool

    @classmethod
    def fit(
        cls,
        kernel: Kernel,
        inputs: Array,
        targets: Array,
        *,
        rng: Generator,
        mean: Mean = None,
        noise: Noise | None = None,
        scale: float | None = None,
        warm_start: Array | None = None,
        n_restarts: int = 0,
        max_iterations: int = FIT_ITERATIONS,
    ) -> Self:
        """Return the process with the most likely theta, found by L-BFGS-B from several starts.

        Args:
            kernel: Kernel of the process.
            inputs: Inputs of the observations, shape (n, d), with n at least 1.
            targets: Targets, shape (n,) or (n, t).
            rng: Random generator that draws starts.
            mean: Prior mean in the units of the targets; None for a constant.
            noise: Noise; None for constant noise.
            scale: Divisor of the targets; None for the targets' standard deviations.
            warm_start: First start; None for the default starts of the parameters.
            n_restarts: Number of further starts, drawn from the priors.
            max_iterations: Largest number of iterations of L-BFGS-B.

        Raises:
            ValueError: If an input or a target is not finite.
        """
        noise = noise or Noise()
        parameters = (*kernel.parameters, *noise.parameters)
        first = np.array([p.start for p in parameters]) if warm_start is None else warm_start
        prior = cls.given(kernel, first, inputs, targets, mean=mean, noise=noise, scale=scale)
        if not prior.standardized.any():
            return prior
        drawn = [[p.draw(rng) for p in parameters] for _ in range(n_restarts)]
        bounds = [(p.lower, p.upper) for p in parameters]
        X, Z = prior.inputs, prior.standardized

        def objective(theta: Array) -> tuple[float, Array]:
            try:
                value, gradient = log_posterior(
                    kernel, theta, X, Z, noise=noise, has_constant=mean is None
                )
            except ValueError:  # the covariance matrix is singular
                return 1e10, np.zeros_like(theta)
            return -value, -gradient

        options = {"maxiter": max_iterations}
        found = [
            minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
            for start in [first, *np.array(drawn)]
        ]
        best = min(found, key=lambda result: float(result.fun))
        return cls.given(kernel, best.x, inputs, targets, mean=mean, noise=noise, scale=scale)

    @classmethod
    def given(
        cls,
        kernel: Kernel,
        theta: Array,
        inputs: Array,
        targets: Array,
        *,
        mean: Mean = None,
        noise: Noise | None = None,
        scale: float | None = None,
    ) -> Self:
        """Return the process with a given theta; see `fit` for the other arguments and errors."""
        inputs = np.asarray(inputs, dtype=np.float64)
        targets = np.asarray(targets, dtype=np.float64)
        noise = noise or Noise()
        if not (np.isfinite(inputs).all() and np.isfinite(targets).all()):
            raise ValueError("inputs and targets must be finite; impute losses of failed trials")
        columns = targets.reshape(len(targets), -1) - _given(mean, inputs)
        offset = columns.mean(axis=0) if mean is None else np.zeros(columns.shape[1])
        scales = columns.std(axis=0) if scale is None else np.full(columns.shape[1], scale)
        # Targets whose spread consists of rounding errors are not divided by the spread.
        is_spread = scales > ROUNDING * np.abs(targets).max(axis=0)
        scales = np.where(is_spread, scales, 1.0)
        standardized = np.where(is_spread | (mean is not None), (columns - offset) / scales, 0.0)
        p = len(kernel.parameters)
        K = kernel.covariance(theta[:p], inputs, inputs)
        factor = cholesky(K, noise.variance(theta[p:], inputs))
        sides = np.column_stack([np.ones(len(inputs)), standardized])
        whitened = solve_triangular(factor, sides)
        return cls(
            kernel=kernel,
            noise=noise,
            theta=np.asarray(theta, dtype=np.float64),
            inputs=inputs,
            standardized=standardized,
            offset=offset,
            scale=scales,
            mean=mean,
            factor=factor,
            whitened=whitened,
            is_single=targets.ndim == 1,
        )

    @property
    def kernel_theta(self) -> Array:
        """The parameters of the kernel, shape (p,)."""
        return self.theta[: len(self.kernel.parameters)]

    def noise_variance(self, inputs: Array) -> Array:
        """Return the noise variance at inputs, relative to the targets' variance, shape (m,)."""
        return self.noise.variance(self.theta[len(self.kernel.parameters) :], inputs)

    def joint(self, inputs: Array) -> tuple[Array, Array]:
        """Return means, shape (m, t), and covariance, shape (m, m), in units of `scale`."""
        inputs = np.asarray(inputs, dtype=np.float64)
        half = self.half(inputs)
        prior = self.kernel.covariance(self.kernel_theta, inputs, inputs)
        constant, centered = self.centered()
        mean = constant + half.T @ centered + (self.offset + _given(self.mean, inputs)) / self.scale
        return mean, prior - half.T @ half

    def of_targets(self, numbers: list[int]) -> Self:
        """Return the process of the given targets, with the same theta and factorization."""
        return replace(
            self,
            standardized=self.standardized[:, numbers],
            offset=self.offset[numbers],
            scale=self.scale[numbers],
            whitened=self.whitened[:, [0, *(1 + number for number in numbers)]],
        )

    def imagining(self, inputs: Array) -> Self:
        """Return the process as if inputs, shape (m, d), had their predicted means as targets.

        This heuristic is known as the kriging believer.
        """
        process = self
        for row in np.asarray(inputs, dtype=np.float64)[:, None]:
            half = process.half(row)
            constant, centered = process.centered()
            standardized = constant + half.T @ centered
            corner = process.kernel.covariance(process.kernel_theta, row, row) - half.T @ half
            root = np.tril(cholesky(corner, process.noise_variance(row)))
            n = len(process.inputs)
            factor = np.zeros((n + 1, n + 1), order="F")
            factor[:n, :n], factor[n:, :n], factor[n:, n:] = process.factor, half.T, root
            sides = np.column_stack([np.ones(1), standardized]) - half.T @ process.whitened
            process = replace(
                process,
                inputs=np.vstack([process.inputs, row]),
                standardized=np.vstack([process.standardized, standardized]),
                factor=factor,
                whitened=np.vstack([process.whitened, solve_triangular(root, sides)]),
            )
        return process

    def predict(self, inputs: Array) -> tuple[Array, Array]:
        """Return means and standard deviations without noise, shape (m,) or (m, t) each."""
        inputs = np.asarray(inputs, dtype=np.float64)
        half = self.half(inputs)
        constant, centered = self.centered()
        latent, variance = constant + half.T @ centered, self._floored(half, inputs)
        mean = self.offset + self.scale * latent + _given(self.mean, inputs)
        deviation = self.scale * np.sqrt(variance)[:, None]
        return (mean[:, 0], deviation[:, 0]) if self.is_single else (mean, deviation)

    def predict_with_gradient(self, inputs: Array) -> tuple[Array, Array, Array, Array]:
        """Return means, standard deviations, and the gradients of both with respect to the inputs.

        Means and deviations have shape (m, t), even for a single target. Gradients have shape (m,
        t, d). The prior mean, if given, must be a number, and the kernel must have a constant
        variance.
        """
        K, pull = self.kernel.input_pullback(self.kernel_theta, inputs, self.inputs)
        half = solve_triangular(self.factor, K.T)
        constant, centered = self.centered()
        weights = solve_triangular(self.factor, centered, transposed=True)
        variance = self._floored(half, inputs)
        solved = solve_triangular(self.factor, half, transposed=True)
        mean = self.offset + self.scale * (constant + K @ weights) + _given(self.mean, inputs)
        by_target = [pull(np.broadcast_to(w, K.shape)) for w in weights.T]
        mean_gradient = np.stack(by_target, axis=1) * self.scale[:, None]
        root = np.sqrt(variance)
        root_gradient = -pull(solved.T) / root[:, None]
        return (
            mean,
            root[:, None] * self.scale,
            mean_gradient,
            root_gradient[:, None, :] * self.scale[:, None],
        )

    def half(self, inputs: Array) -> Array:
        """Return H = L^-1 k(X, inputs), shape (n, m).

        H'H is subtracted from the prior covariance.
        """
        K = self.kernel.covariance(self.kernel_theta, self.inputs, inputs)
        return solve_triangular(self.factor, K)

    def _floored(self, half: Array, inputs: Array) -> Array:
        prior = self.kernel.variance(self.kernel_theta, inputs)
        return np.maximum(prior - np.einsum("ij,ij->j", half, half), ROUNDING * prior)

    def centered(self) -> tuple[Array, Array]:
        """Return the constant mean, shape (t,), and L^-1 (standardized - constant), (n, t).

        The constant of each target y is 1'K^-1 y / 1'K^-1 1 (generalized least squares).
        """
        ones, standardized = self.whitened[:, 0], self.whitened[:, 1:]
        constant = np.zeros(len(self.scale))
        if self.mean is None:
            constant = ones @ standardized / (ones @ ones)
        return constant, standardized - self.whitened[:, :1] * constant


def _given(mean: Mean, inputs: Array) -> Array | float:
    if mean is None:
        return 0.0
    return np.asarray(mean(inputs))[:, None] if callable(mean) else float(mean)
