"""The covariance of what is particular to each row, beside what it shares with others like it."""

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.surrogates.kernel import Array, Kernel, Parameter, Pullback

__all__ = ["NUGGET", "Nugget"]

NUGGET = Parameter("logit w", -2.0, -7.0, 3.0, (-2.0, 1.5))
"""Share of the variance that is particular to a row."""


class Nugget(Kernel):
    """(1 - w) k(a, b) + w [a = b]: rows that are equal have more in common than the nearest.

    Without it, what a seed or a detail does to a whole learning curve is either put down to the
    inputs, whose lengthscales shrink, or to noise that is new at every epoch.

    Args:
        within: k, of variance 1.
        width: The first so many columns must be equal.
        share: Logit of w.
    """

    def __init__(self, within: Kernel, width: int, share: Parameter = NUGGET) -> None:
        self.within, self.width = within, width
        self.parameters = (*within.parameters, share)

    def covariance(self, theta: Array, a: Array, b: Array) -> Array:
        """See `Kernel.covariance`."""
        w = _expit(theta[-1])
        K: Array = (1 - w) * self.within.covariance(theta[:-1], a, b)
        K[self._same(a, b)] += w
        return K

    def variance(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance`."""
        w = _expit(theta[-1])
        total: Array = (1 - w) * self.within.variance(theta[:-1], inputs) + w
        return total

    def variance_gradient(self, theta: Array, inputs: Array) -> Array:
        """See `Kernel.variance_gradient`."""
        inside: Array = self.within.variance_gradient(theta[:-1], inputs)
        return (1 - _expit(theta[-1])) * inside

    def pullback(self, theta: Array, inputs: Array) -> tuple[Array, Pullback]:
        """See `Kernel.pullback`."""
        w = _expit(theta[-1])
        K, pull = self.within.pullback(theta[:-1], inputs)
        same = self._same(inputs, inputs)

        def pull_all(weights: Array) -> Array:
            slope = w * (1 - w) * (weights[same].sum() - np.sum(weights * K))
            return np.append(pull((1 - w) * weights), slope)

        return (1 - w) * K + w * same, pull_all

    def input_pullback(self, theta: Array, a: Array, b: Array) -> tuple[Array, Pullback]:
        """See `Kernel.input_pullback`."""
        w = _expit(theta[-1])
        K, pull = self.within.input_pullback(theta[:-1], a, b)
        return (1 - w) * K + w * self._same(a, b), lambda weights: pull((1 - w) * weights)

    def _same(self, a: Array, b: Array) -> NDArray[np.bool_]:
        """Return which rows are equal, shape (n, m)."""
        rows = np.vstack([a[:, : self.width], b[:, : self.width]])
        _, number = np.unique(rows, axis=0, return_inverse=True)
        same: NDArray[np.bool_] = np.equal.outer(number[: len(a)], number[len(a) :])
        return same


def _expit(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))
