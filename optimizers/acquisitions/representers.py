"""Points that stand for the whole space when it is asked where the minimum may be."""

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

__all__ = ["choose_representers"]

Array = NDArray[np.floating[Any]]

# Of the representers, those that may come from Thompson draws.
_THOMPSON_SHARE = 0.6


def choose_representers(
    draws: Array, log_improvement: Array, n: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Return rows of the pool, all different: n, or the whole pool when it has no more.

    First the minimisers of joint posterior draws (Thompson sampling), up to 0.6 n / K distinct ones
    of each hyperparameter sample; then others, drawn without replacement with probability
    proportional to the expected improvement summed over the samples. One set serves all samples.

    Args:
        draws: T joint draws at s = 1 by each of K hyperparameter samples over a pool of P points,
            shape (K, T, P).
        log_improvement: ln of the expected improvement by each sample, shape (K, P); -inf for none.
        n: How many representers, at least 1.
        rng: For what is drawn to fill up.

    Raises:
        ValueError: If the shapes do not fit, n is not positive, or a number is NaN.
    """
    if draws.ndim != 3 or log_improvement.shape != (draws.shape[0], draws.shape[2]):
        raise ValueError(
            f"draws of shape {draws.shape} and improvements of shape {log_improvement.shape}, "
            f"not (K, T, P) and (K, P)"
        )
    if n < 1:
        raise ValueError(f"{n} representers; ask for 1 or more")
    if np.isnan(draws).any() or np.isnan(log_improvement).any():
        raise ValueError("a draw or an expected improvement is NaN")
    most = max(1, int(_THOMPSON_SHARE * n / len(draws)))
    minima = draws.argmin(axis=2)
    distinct = (list(dict.fromkeys(row))[:most] for row in minima.tolist())
    chosen = list(dict.fromkeys(chain.from_iterable(distinct)))[:n]
    # Of numbers log w_i + Gumbel, the largest are a sample without replacement by w (Yellott 1977).
    keys = logsumexp(log_improvement, axis=0) + rng.gumbel(size=draws.shape[2])
    taken = np.zeros(draws.shape[2], dtype=np.bool_)
    taken[chosen] = True
    order = np.lexsort((-keys, taken))
    fill = order[: min(n, len(order)) - len(chosen)]
    return np.concatenate([np.array(chosen, dtype=np.intp), fill])
