"""The covariance of a choice and of what is particular to it."""

import numpy as np

from prefect_tune.optimizers.surrogates.kernel import Array, Kernel, Parameter, Pullback

__all__ = ["CORRELATION", "Conditional"]

CORRELATION = Parameter("logit rho", -0.5, -5.0, 5.0, (-0.5, 1.5))
"""How alike the choices of a step are."""


class Conditional(Kernel):
    """rho + (1 - rho) [same choice] k(a, b): one step of a pipeline and what its choices bring.

    The product of these over the steps is the kernel of whole pipelines. What is inactive in both
    rows must be equal in both, so that it adds no distance.

    Args:
        choice: Column that says which algorithm the step takes.
        within: Kernel of two rows with the same choice; None when nothing else is to be compared.
        correlation: Logit of rho.
    """

    def __init__(
        self, choice: int, within: Kernel | None = None, correlation: Parameter = CORRELATION
    ) -> None:
        self.choice = choice
        self.within = within
        self.parameters = (correlation, *(within.parameters if within else ()))

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        rho, same = _expit(theta[0]), self._same(a, b)
        inside = same if self.within is None else same * self.within.covariance(theta[1:], a, b)
        K: Array = rho + (1 - rho) * inside
        return K

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        rho = _expit(theta[0])
        if self.within is None:
            return np.ones(len(inputs))
        total: Array = rho + (1 - rho) * self.within.variance(theta[1:], inputs)
        return total

    def variance_gradient(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance_gradient`."""
        if self.within is None:
            return np.zeros_like(inputs)
        inside: Array = self.within.variance_gradient(theta[1:], inputs)
        return (1 - _expit(theta[0])) * inside

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        rho, same = _expit(theta[0]), self._same(inputs, inputs)
        inside, inner = same, None
        if self.within is not None:
            K, inner = self.within.pullback(theta[1:], inputs)
            inside = same * K

        def pull(weights: Array) -> Array:
            head = rho * (1 - rho) * np.sum(weights * (1 - inside), keepdims=True).ravel()
            return head if inner is None else np.append(head, inner((1 - rho) * weights * same))

        return rho + (1 - rho) * inside, pull

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """See `Kernel.input_pullback`."""
        rho, same = _expit(theta[0]), self._same(a, b)
        if self.within is None:
            return rho + (1 - rho) * same, lambda weights: np.zeros_like(a)  # noqa: ARG005
        K, inner = self.within.input_pullback(theta[1:], a, b)
        return rho + (1 - rho) * same * K, lambda weights: inner((1 - rho) * weights * same)

    def _same(self, a: Array, b: Array) -> Array:
        same: Array = np.equal.outer(a[:, self.choice], b[:, self.choice]).astype(np.float64)
        return same


def _expit(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))
