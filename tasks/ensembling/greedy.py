"""Greedy selection of members with replacement.

Caruana, Niculescu-Mizil, Crew and Ksikes, "Ensemble selection from libraries of models" (ICML
2004), as in Ram et al. (2020), appendix 8.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.trials.losses import is_least
from prefect_tune.tasks.ensembling.fit_limit import FitLimit

__all__ = ["greedy_picks", "weights_of"]


def greedy_picks(
    members: Sequence[NDArray[np.float64]],
    loss: Callable[[NDArray[np.float64]], float],
    size: int,
    limit: FitLimit | None = None,
) -> tuple[list[int], list[float]]:
    """Pick members with replacement, each the one that improves the ensemble so far most.

    Args:
        members: What each contributes, all of one shape; the first one is the best alone.
        loss: Loss of the mean of some of them.
        size: How many to pick at most.
        limit: On what the picked ones take to fit.

    Returns:
        The picks by position up to the size that is best, and the ensemble's loss after each. Of
        equals, the first.
    """
    picks, losses = [0], [loss(members[0])]
    total = members[0].copy()
    while len(picks) < size:
        may_join = np.ones(len(members), bool) if limit is None else limit.may_join(picks)
        tried = np.array(
            [
                loss((total + member) / (len(picks) + 1)) if may else np.inf
                for member, may in zip(members, may_join, strict=True)
            ]
        )
        best = int(np.argmax(is_least(tried)))
        picks.append(best)
        losses.append(float(tried[best]))
        total = total + members[best]
    n = int(np.argmax(is_least(np.array(losses)))) + 1
    return picks[:n], losses[:n]


def weights_of(picks: Sequence[int]) -> Mapping[int, float]:
    """Return each picked member's share of the picks."""
    return {member: n / len(picks) for member, n in sorted(Counter(picks).items())}
