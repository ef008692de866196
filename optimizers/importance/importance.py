"""The importance of the choices of a study: functional ANOVA on random forests.

Hutter, Hoos and Leyton-Brown, An efficient approach for assessing hyperparameter importance, ICML
2014, on the encoding of conditional spaces that the forests of SMAC and FLASH search by. Unlike
there, choices of algorithms are inputs as hyperparameters are, the shares are Sobol' indices
estimated from draws of the prior, and each forest is fitted to a bootstrap of the trials, so that
the spread over the forests says how sure a share is. Losses above a bound count as the bound:
guessing, or the upper fence of Tukey's box plot where that is less. Otherwise a few useless corners
of the space would make most of the variance, and nothing would be said of the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prefect_tune.optimizers.importance.effects import Effect, effects
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.surrogates.random_forest import RandomForest

_N_FORESTS = 12
_N_TREES = 8
_MIN_SPLIT = 3
"""As fANOVA's forests have it (Hutter et al. 2014)."""
_MAX_FEATURES = 0.5


class BaggedForests:
    """Forests and the out-of-bag R2 of them together; `fit` makes them.

    Args:
        forests: One for each bootstrap.
        r2: Share of the variance of the losses that is predicted for trials that were left out;
            1 is all, 0 or less is none.
    """

    def __init__(self, forests: list[RandomForest], r2: float) -> None:
        self._forests, self.r2 = forests, r2

    @classmethod
    def fit(cls, X: NDArray[np.float64], y: NDArray[np.float64], seed: int) -> Self:
        """Fit to encoded configurations, shape (n, d), and their losses, shape (n,)."""
        rng = np.random.default_rng(seed)
        forests, left_out = [], np.full((_N_FORESTS, len(y)), np.nan)
        for k in range(_N_FORESTS):
            drawn = rng.integers(len(y), size=len(y))
            forest = RandomForest.fit(
                X[drawn],
                y[drawn],
                n_trees=_N_TREES,
                min_samples_split=_MIN_SPLIT,
                max_features=_MAX_FEATURES,
                seed=int(rng.integers(2**31)),
            )
            out = np.setdiff1d(np.arange(len(y)), drawn)
            left_out[k, out] = forest.predict(X[out])[0]
            forests.append(forest)
        return cls(forests, _r2(y, left_out))

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each forest predicts of m configurations, shape (forests, m)."""
        return np.array([forest.predict(X)[0] for forest in self._forests])


def _r2(y: NDArray[np.float64], left_out: NDArray[np.float64]) -> float:
    """Return R2 of the mean of those predictions that had not seen the trial."""
    known = ~np.isnan(left_out).all(axis=0)
    predicted = np.nanmean(left_out[:, known], axis=0)
    spread = float(((y[known] - y[known].mean()) ** 2).sum())
    return 1 - float(((y[known] - predicted) ** 2).sum()) / spread if spread > 0 else 0.0


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
    configurations: Sequence[Mapping[str, Any]],
    losses: ArrayLike,
    chance: float | None = None,
    seed: int = 0,
) -> Importance:
    """Return how much each choice matters for the loss, over the whole space.

    Args:
        space: What was searched.
        configurations: Those with a loss, each once, as JSON values: of many, few are read.
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
    lower, upper = np.quantile(y, (0.25, 0.75))
    fence = float(upper + 1.5 * (upper - lower))
    bound = fence if fence > y.min() else float(y.max())
    bound = bound if chance is None or chance <= y.min() else min(bound, chance)
    clipped = np.minimum(y[rows], bound)
    if np.ptp(clipped) == 0:
        return Importance(n, bound, reason="all losses are the same")
    candidates = CandidateSpace(space)
    read = (Configuration.from_json(configurations[int(row)], space) for row in rows)
    X = candidates.features(candidates.encode(read))
    forests = BaggedForests.fit(X, clipped, seed)
    if forests.r2 < LEAST_R2:
        reason = "a forest cannot predict their losses well enough"
        return Importance(n, bound, forests.r2, reason=reason)
    found = effects(candidates, forests.predict, seed)
    if not found:
        return Importance(n, bound, reason="the forests predict the same loss everywhere")
    return Importance(n, bound, forests.r2, tuple(found))
