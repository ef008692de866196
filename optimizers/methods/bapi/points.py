"""Which epochs of a curve enter the process: few, and those that say most (sheet, 3.3)."""

from collections.abc import Sequence

import numpy as np

from prefect_tune.optimizers.surrogates.curve_kernel import Decay
from prefect_tune.optimizers.surrogates.kernel import Array

__all__ = ["chosen_epochs", "thinned"]

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

    It depends on neither losses nor other curves.

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
