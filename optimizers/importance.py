"""The importance of a study's choices, measured by permuting the inputs of a random forest.

Each input of the forest is the choice of a step's algorithm, or a hyperparameter. The importance of
an input is the drop in the forest's R2 when the input's values are permuted among the
configurations (Breiman 2001). Losses are capped at the baseline loss, or at the upper fence of
Tukey's box plot if the fence is lower. Without a cap, a few very bad configurations would dominate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance

from prefect_tune.optimizers.models.forest import N_TREES
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.vectors import CandidateSpace

LEAST_TRIALS = 20
"""Minimum number of configurations needed to fit a forest."""
LEAST_R2 = 0.2
"""Out-of-bag R2 below which importances are noise."""
_MOST_TRIALS = 1_000
"""Largest number of configurations to fit. If there are more, a sample is drawn."""
_MOST_INPUTS = 20
"""Number of inputs to permute. Inputs that reduce the variance in the trees most are chosen."""


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the forest: the choice of a step's algorithm, or a hyperparameter's value."""

    step: str
    algorithm: str | None = None
    hyperparameter: str | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of permuting one input: mean and standard deviation of the drop in the forest's R2."""

    input: Input
    drop: float
    deviation: float


@dataclass(frozen=True)
class Importance:
    """The importance of a study's choices.

    Attributes:
        n_configurations: Number of configurations with a loss.
        bound: Cap of the losses; None if too few configurations have a loss.
        r2: Out-of-bag R2 of the forest; None without a forest.
        effects: Effects of the inputs, the largest first.
        reason: Reason why `effects` is empty.
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
    """Return the importance of each choice for the loss.

    Args:
        space: Space of the study.
        configurations: Distinct configurations with a loss, as JSON values.
        losses: Losses of the configurations, shape (n,).
        chance: Loss of the baseline, if known.
        seed: Seed of the forest, the permutations and the sampling of configurations.
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
    clipped /= np.ptp(clipped)  # scikit-learn does not split nodes of tiny variance
    encoded, rng = CandidateSpace(space), np.random.default_rng(seed)
    drawn = encoded.encode(Configuration.from_json(configurations[int(i)], space) for i in rows)
    # Inactive hyperparameters get random values, which reveal nothing about the path.
    units = np.where(encoded.active(drawn), drawn.units, rng.random(drawn.units.shape))
    X = np.hstack([drawn.algorithms, units])
    inputs = [Input(step.name) for step in space.searched]
    inputs += [Input(*column) for column in encoded.columns]
    forest = RandomForestRegressor(N_TREES, max_features=0.5, oob_score=True, random_state=seed)
    forest.fit(X, clipped)
    r2 = float(forest.oob_score_)
    if r2 < LEAST_R2:
        reason = "a random forest cannot predict the losses well enough"
        return Importance(n, bound, r2, reason=reason)
    top = np.argsort(-forest.feature_importances_, kind="stable")[:_MOST_INPUTS]
    forest.fit(X[:, top], clipped)
    found = permutation_importance(forest, X[:, top], clipped, random_state=seed)
    pairs = zip(top, found.importances_mean, found.importances_std, strict=True)
    effects = [Effect(inputs[i], float(drop), float(spread)) for i, drop, spread in pairs]
    return Importance(n, bound, r2, tuple(sorted(effects, key=lambda effect: -effect.drop)))
