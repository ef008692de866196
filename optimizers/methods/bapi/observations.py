"""The points of the curves that GP_f learns from: few epochs of each, of the largest variance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from prefect_tune.optimizers.methods.bapi.curves import LearningCurve
from prefect_tune.optimizers.surrogates.curve_kernel import CurveKernel, Decay
from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.surrogates.pipeline_inputs import PipelineInputs
from prefect_tune.optimizers.trials.objective import Objective

_MOST_EPOCHS = 50
"""That are chosen among; of longer curves, evenly spaced by their logarithm."""


def chosen_epochs(
    epochs: Sequence[int],
    n_points: int,
    t_max: int,
    *,
    of_time: Decay,
    theta: Array,
    noise: float,
) -> list[int]:
    """Return the last epoch, and those of the largest variance given the ones chosen before.

    This is the paper's selection of data points (section 3.4), after Nguyen et al. 2020, by the
    kernel of t alone: the choice depends on neither losses nor other curves.

    Args:
        epochs: Those that are known, rising, at least one.
        n_points: How many to choose.
        t_max: Epochs of a full training.
        of_time: Covariance of t.
        theta: Its parameters.
        noise: Variance of observations, standardised.

    Returns:
        Up to `n_points` epochs, rising.
    """
    if len(epochs) <= n_points:
        return list(epochs)
    if len(epochs) > _MOST_EPOCHS:
        places = np.unique(np.geomspace(1, len(epochs), _MOST_EPOCHS).round().astype(int)) - 1
        epochs = [epochs[i] for i in places]
    t = np.array(epochs) / t_max
    covariance = of_time.covariance(theta, t, t)
    chosen = [len(t) - 1]
    while len(chosen) < n_points:
        among = covariance[np.ix_(chosen, chosen)] + noise * np.eye(len(chosen))
        across = covariance[chosen]
        explained = np.einsum("ij,ij->j", across, np.linalg.solve(among, across))
        left = np.diag(covariance) - explained
        left[chosen] = -np.inf
        chosen.append(int(np.argmax(left)))
    return [epochs[i] for i in sorted(chosen)]


def thinned(counts: Sequence[int], losses: Sequence[float], most: int) -> list[bool]:
    """Return which curves keep their last point alone, so that all have at most so many points.

    Those with the largest losses are the first; the best one is left as it is. Each has one, so
    that there are never fewer than curves.

    Args:
        counts: Points of each curve.
        losses: The least of each.
        most: Points of all curves.
    """
    total, is_thinned = sum(counts), [False] * len(counts)
    for i in sorted(range(len(losses)), key=lambda i: (-losses[i], -i))[:-1]:
        if total <= most:
            break
        total -= counts[i] - 1
        is_thinned[i] = True
    return is_thinned


_MOST_POINTS = 150
_MOST_CURVES = 150
_BEST_CURVES = 100
"""Of more curves, those that are learned from whatever their age; the others are the newest."""
_WORST = 10.0
"""Losses of chance at which losses without bounds are cut off: what diverges says no more; or as
many times what the best and the median are apart."""


def largest_told(losses: Array, objective: Objective) -> float:
    """Return the loss above which losses say no more than that a training diverged.

    Args:
        losses: Told ones, shape (n,), at least one.
        objective: Its bound, if it has one, or the loss of chance.
    """
    if np.isfinite(objective.upper):
        return objective.upper
    if objective.chance is not None and objective.chance > 0:
        return _WORST * objective.chance
    best, typical = np.quantile(losses, (0.0, 0.5))
    return float(best + _WORST * (typical - best)) if typical > best else np.inf


@dataclass(frozen=True)
class CurveObservations:
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
        objective: Objective,
        n_points: int,
        t_max: int,
    ) -> Self:
        """Return the points of curves, at least one of which has some or has failed.

        Args:
            curves: All that were begun.
            inputs: Of the space.
            kernel: Its part of time, and theta, decide which epochs say most.
            theta: Parameters of the kernel and the noise.
            objective: Says where losses are cut off.
            n_points: Of each curve at most.
            t_max: Epochs of a full training.
        """
        p, of_time = len(kernel.parameters), kernel.of_time
        outer, noise = theta[p - len(of_time.parameters) : p], float(np.exp(theta[p]))
        curves = most_telling(curves)
        known = [c for c in curves if c.epochs and not c.is_infeasible]
        chosen = {
            n: chosen_epochs(n, n_points, t_max, of_time=of_time, theta=outer, noise=noise)
            for n in {c.epochs for c in known}
        }
        epochs = [chosen[c.epochs] for c in known]
        is_thinned = thinned([len(e) for e in epochs], [c.loss for c in known], _MOST_POINTS)
        epochs = [e[-1:] if cut else e for e, cut in zip(epochs, is_thinned, strict=True)]
        rows = [(c, e, c.loss_at(e)) for c, es in zip(known, epochs, strict=True) for e in es]
        # What fails or violates is as bad as the worst, at the end: it is avoided with its like.
        worst = max((c.losses[0] for c in curves if c.epochs), default=0.0)
        useless = [c for c in curves if c.is_infeasible or (c.has_failed and not c.epochs)]
        rows += [(c, t_max, worst) for c in useless]
        candidates = inputs.encode(c.configuration for c, _, _ in rows)
        t = np.array([e for _, e, _ in rows]) / t_max
        losses = np.array([y for _, _, y in rows])
        largest = largest_told(losses, objective)
        return cls(inputs.at(candidates, t), np.minimum(losses, largest))


def most_telling(curves: Sequence[LearningCurve]) -> list[LearningCurve]:
    """Return the curves that are learned from, in their order: the best ones and the newest."""
    told = [c for c in curves if c.epochs or c.has_failed]
    if len(told) <= _MOST_CURVES:
        return told
    rank = np.argsort(np.argsort([c.loss for c in told], kind="stable"))
    by_age = sorted(range(len(told)), key=lambda i: told[i].trials[-1].number)
    others = [i for i in by_age if rank[i] >= _BEST_CURVES]
    newest = set(others[_BEST_CURVES - _MOST_CURVES :])
    return [c for i, c in enumerate(told) if rank[i] < _BEST_CURVES or i in newest]
