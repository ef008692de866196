"""The points of the curves that are learned from, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.methods.bapi.points import chosen_epochs, thinned
from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel
from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs

__all__ = ["Observations"]

_MOST_POINTS = 150
_WORST = 3.0
"""Interquartile ranges above the median at which losses are cut off: what diverges says no more."""


@dataclass(frozen=True)
class Observations:
    """Points of curves.

    Attributes:
        inputs: With the time trained behind them, shape (n, width + 1).
        losses: The least up to then, shape (n,).
    """

    inputs: Array
    losses: Array

    @classmethod
    def of(
        cls,
        curves: Sequence[LearningCurve],
        inputs: PipelineInputs,
        kernel: CurveKernel,
        theta: Array,
        *,
        n_points: int,
        t_max: int,
    ) -> Self:
        """Return the points of curves, at least one of which has some or has failed.

        Args:
            curves: All that were begun.
            inputs: Of the space.
            kernel: Its part of time, and theta, decide which epochs say most.
            theta: Parameters of the kernel and the noise.
            n_points: Of each curve at most.
            t_max: Epochs of a full training.
        """
        p, of_time = len(kernel.parameters), kernel.of_time
        outer, noise = theta[p - len(of_time.parameters) : p], float(np.exp(theta[p]))
        known = [c for c in curves if c.epochs]
        chosen = {
            n: chosen_epochs(n, n_points, t_max, of_time=of_time, theta=outer, noise=noise)
            for n in {c.epochs for c in known}
        }
        epochs = [chosen[c.epochs] for c in known]
        is_thinned = thinned([len(e) for e in epochs], [c.loss for c in known], _MOST_POINTS)
        epochs = [e[-1:] if cut else e for e, cut in zip(epochs, is_thinned, strict=True)]
        rows = [(c, e, c.loss_at(e)) for c, es in zip(known, epochs, strict=True) for e in es]
        # A failure is as bad as the worst, at the end: its neighbourhood is avoided.
        worst = max((c.losses[0] for c in known), default=0.0)
        rows += [(c, t_max, worst) for c in curves if c.has_failed and not c.epochs]
        candidates = inputs.encode(c.configuration for c, _, _ in rows)
        t = np.array([e for _, e, _ in rows]) / t_max
        losses = np.array([y for _, _, y in rows])
        low, middle, high = np.quantile(losses, (0.25, 0.5, 0.75))
        cap = middle + _WORST * (high - low) if high > low else np.inf
        return cls(inputs.at(candidates, t), np.minimum(losses, cap))
