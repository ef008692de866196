"""The importance of the choices of a study: functional ANOVA on random forests.

Hutter, Hoos and Leyton-Brown, An efficient approach for assessing hyperparameter importance, ICML
2014, on the encoding of conditional spaces that the forests of SMAC and FLASH search by. Unlike
there, choices of algorithms are inputs as hyperparameters are, the shares are Sobol' indices
estimated from draws of the prior, and each forest is fitted to a bootstrap of the trials, so that
the spread over the forests says how sure a share is. Losses above a bound count as the bound:
guessing, or the upper fence of Tukey's box plot where that is less. Otherwise a few useless corners
of the space would make most of the variance, and nothing would be said of the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prefect_tune.optimizers.importance.bagged_forests import BaggedForests
from prefect_tune.optimizers.importance.effects import Effect, effects
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space

__all__ = ["LEAST_R2", "LEAST_TRIALS", "Importance", "importance_of"]

LEAST_TRIALS = 20
"""Configurations that a forest needs before what it says is worth asking."""
LEAST_R2 = 0.2
"""Out-of-bag R2 below which the shares are of noise."""
_MOST_TRIALS = 1_000
"""Configurations that the forests are fitted to; of more, so many at random."""


@dataclass(frozen=True)
class Importance:
    """The importance of the choices of a study.

    Attributes:
        n_configurations: How many configurations it is learned from.
        bound: Losses above it count as it; None where there are too few.
        r2: Out-of-bag R2 of the forests; None where there are none that tell losses apart.
        effects: The largest total first; empty if nothing can be said.
        reason: Why nothing can be said; empty if something can.
    """

    n_configurations: int
    bound: float | None = None
    r2: float | None = None
    effects: tuple[Effect, ...] = ()
    reason: str = ""


def importance_of(
    space: Space,
    configurations: Sequence[Configuration],
    losses: ArrayLike,
    chance: float | None = None,
    seed: int = 0,
) -> Importance:
    """Return how much each choice matters for the loss, over the whole space.

    Args:
        space: What was searched.
        configurations: Those with a loss, each once.
        losses: Their losses, shape (n,).
        chance: Loss of guessing, if known.
        seed: Source of randomness.
    """
    y, n = np.asarray(losses, dtype=np.float64), len(configurations)
    if n < LEAST_TRIALS:
        return Importance(n, reason=f"at least {LEAST_TRIALS} are needed")
    rows = np.arange(n)
    if n > _MOST_TRIALS:
        rows = np.sort(np.random.default_rng(seed).choice(n, _MOST_TRIALS, replace=False))
    bound = _bound(y, chance)
    clipped = np.minimum(y[rows], bound)
    if np.ptp(clipped) == 0:
        return Importance(n, bound, reason="all losses are the same")
    candidates = CandidateSpace(space)
    X = candidates.features(candidates.encode(configurations[int(row)] for row in rows))
    forests = BaggedForests.fit(X, clipped, seed)
    if forests.r2 < LEAST_R2:
        reason = "a forest cannot predict their losses well enough"
        return Importance(n, bound, forests.r2, reason=reason)
    found = effects(candidates, forests.predict, seed)
    if not found:
        return Importance(n, bound, reason="the forests predict the same loss everywhere")
    return Importance(n, bound, forests.r2, tuple(found))


def _bound(losses: NDArray[np.float64], chance: float | None) -> float:
    """Return the loss that worse ones count as."""
    lower, upper = np.quantile(losses, (0.25, 0.75))
    fence = float(upper + 1.5 * (upper - lower))
    fence = fence if fence > losses.min() else float(losses.max())
    return fence if chance is None or chance <= losses.min() else min(fence, chance)
