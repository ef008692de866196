"""The importance of the choices of a study: functional ANOVA on random forests.

The method is by Hutter, Hoos and Leyton-Brown, An efficient approach for assessing hyperparameter
importance, ICML 2014. Conditional spaces are encoded as for the forests of SMAC and FLASH.
Departures: choices of algorithms are inputs like hyperparameters. Shares are Sobol' indices
estimated from prior draws. Each forest is fitted to a bootstrap of the trials, so that the spread
over forests shows the uncertainty of a share. Inputs are drawn as independent uniforms, each
standing for a choice. Losses are capped at the loss of guessing, or at the upper fence of Tukey's
box plot if that is lower. Without a cap, a few useless corners of the space would dominate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import sobol_indices
from scipy.stats.qmc import Sobol

from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.random_forest import RandomForest


@dataclass(frozen=True, slots=True)
class Input:
    """The choice of a step's algorithm, or of one algorithm's hyperparameter."""

    step: str
    algorithm: str | None = None
    hyperparameter: str | None = None


def inputs_of(space: CandidateSpace) -> tuple[Input, ...]:
    """Return the choice of each searched step, then all hyperparameters, K + d in all."""
    choices = (Input(step.name) for step in space.space.searched)
    return (*choices, *(Input(*column) for column in space.encoding.columns))


class PriorDraws:
    """Pairs of independent draws A and B of a space's prior, as in Saltelli et al. (2010).

    Each input is drawn independently: the algorithms of a step uniformly, and the positions of a
    hyperparameter uniformly on its scale. Inactive hyperparameters and ignored steps have no
    effect, which makes the decomposition of the variance well defined on a conditional space. Paths
    that cannot run are drawn too, because excluding them would make the choices dependent. The n
    pairs come from a scrambled Sobol' sequence; n is a power of 2.
    """

    def __init__(self, space: CandidateSpace, n: int, seed: int) -> None:
        self._space = space
        self._n_steps = len(space.space.searched)
        n_inputs = self._n_steps + len(space.columns)
        both = Sobol(2 * n_inputs, rng=np.random.default_rng(seed)).random(n)
        self.a = self._candidates(both[:, :n_inputs])
        self._b = self._candidates(both[:, n_inputs:])
        self._settled = space.settled(self.a.algorithms)
        self._active = space.columns.active(self._as_run(self.a))

    def features(self) -> tuple[Array, Array]:
        """Return A and B as the features of a model."""
        a, b = (self._space.features(self._as_run(drawn)) for drawn in (self.a, self._b))
        return a, b

    def changed(self, position: int) -> tuple[NDArray[np.intp], Candidates]:
        """Return the rows of A whose pipeline one input changes, and those rows with B's value."""
        if position < self._n_steps:
            algorithms = self.a.algorithms.copy()
            algorithms[:, position] = self._b.algorithms[:, position]
            settled = self._space.settled(algorithms)
            rows = np.flatnonzero((settled != self._settled).any(axis=1))
            return rows, Candidates(settled[rows], self.a.units[rows])
        column = position - self._n_steps
        rows = np.flatnonzero(self._active[:, column])
        units = self.a.units[rows].copy()
        units[:, column] = self._b.units[rows, column]
        return rows, Candidates(self._settled[rows], units)

    def _candidates(self, draws: Array) -> Candidates:
        sizes = np.array([len(step.algorithms) for step in self._space.space.searched])
        chosen = np.minimum((draws[:, : self._n_steps] * sizes).astype(np.intp), sizes - 1)
        return Candidates(chosen, draws[:, self._n_steps :])

    def _as_run(self, drawn: Candidates) -> Candidates:
        return Candidates(self._space.settled(drawn.algorithms), drawn.units)


Predict = Callable[[Array], Array]
"""Function from features, shape (m, N + d), to predictions of s models, shape (s, m)."""
_N_DRAWS = 2048
_AT_ONCE = 16
"""Number of inputs whose changed rows are predicted together; more would take more memory."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The share of the variance of the loss due to one input, from 0 to 1.

    `main` is the share of the input alone, averaged over all others, and `total` includes its
    interactions. Deviations are standard deviations over the models.
    """

    input: Input
    main: float
    main_deviation: float
    total: float
    total_deviation: float


def effects(
    space: CandidateSpace, predict: Predict, seed: int = 0, n: int = _N_DRAWS
) -> list[Effect]:
    """Return the first-order and total Sobol' index of each input, the largest total first.

    The estimators of Saltelli et al. (2010) use A, B and A with one column of B at a time. On a
    conditional space, most inputs are inactive in most rows. Only changed rows are predicted again,
    so the work grows only with a pipeline's active inputs. `predict` has s models, such as one per
    bootstrap; constant models are skipped. n is a power of 2.
    """
    draws, inputs = PriorDraws(space, n, seed), inputs_of(space)
    f_a, f_b = map(predict, draws.features())
    varying = np.flatnonzero(np.ptp(np.hstack((f_a, f_b)), axis=1) > 0)
    if not len(varying):
        return []
    f_a, f_b = f_a[varying], f_b[varying]

    def varied(features: Array) -> Array:
        return predict(features)[varying]

    found = []
    for start in range(0, len(inputs), _AT_ONCE):
        positions = range(start, min(start + _AT_ONCE, len(inputs)))
        f_ab = _with_one_of_b(space, draws, varied, f_a, positions)
        split = sobol_indices(func={"f_A": f_a, "f_B": f_b, "f_AB": f_ab}, n=n)
        shares = split.first_order, split.total_order
        main, total = (np.reshape(share, (len(f_a), len(positions))) for share in shares)
        found += [
            Effect(inputs[i], *_summed(main[:, k]), *_summed(total[:, k]))
            for k, i in enumerate(positions)
        ]
    return sorted(found, key=lambda effect: -effect.total)


def _with_one_of_b(
    space: CandidateSpace, draws: PriorDraws, predict: Predict, f_a: Array, positions: range
) -> Array:
    """Predictions of A with each of some inputs taken from B, shape (k, s, n)."""
    changed = [draws.changed(position) for position in positions]
    f_ab = np.repeat(f_a[None], len(changed), axis=0)
    if not sum(len(rows) for rows, _ in changed):
        return f_ab
    first, *others = (candidates for _, candidates in changed)
    together: Candidates = first.joined(*others)
    predicted, start = predict(space.features(together)), 0
    for page, (rows, _) in zip(f_ab, changed, strict=True):
        page[:, rows] = predicted[:, start : start + len(rows)]
        start += len(rows)
    return f_ab


def _summed(shares: Array) -> tuple[float, float]:
    return float(np.clip(shares.mean(), 0.0, 1.0)), float(shares.std())


_N_FORESTS = 12
_N_TREES = 8
_MIN_SPLIT = 3
"""Fewest trials in a node to split, as in fANOVA's forests (Hutter et al. 2014)."""
_MAX_FEATURES = 0.5


class BaggedForests:
    """Forests and their joint out-of-bag R2: 1 if perfect, 0 or less if useless."""

    def __init__(self, forests: list[RandomForest], r2: float) -> None:
        self._forests, self.r2 = forests, r2

    @classmethod
    def fit(cls, X: Array, y: Array, seed: int) -> Self:
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

    def predict(self, X: Array) -> Array:
        """Return each forest's predictions of m configurations, shape (forests, m)."""
        return np.array([forest.predict(X)[0] for forest in self._forests])


def _r2(y: Array, left_out: Array) -> float:
    known = ~np.isnan(left_out).all(axis=0)
    predicted = np.nanmean(left_out[:, known], axis=0)
    spread = float(((y[known] - y[known].mean()) ** 2).sum())
    return 1 - float(((y[known] - predicted) ** 2).sum()) / spread if spread > 0 else 0.0


LEAST_TRIALS = 20
"""Number of configurations needed for a meaningful forest."""
LEAST_R2 = 0.2
"""Out-of-bag R2 below which shares are noise."""
_MOST_TRIALS = 1_000
"""Largest number of configurations to fit; of more, a random sample is fitted."""


@dataclass(frozen=True)
class Importance:
    """The importance of the choices of a study.

    Attributes:
        bound: Cap of the losses; None if there are too few losses.
        r2: Out-of-bag R2 of the forests; None without informative forests.
        effects, reason: Effects, the largest total first, or the reason why there are none.
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

    `configurations` are distinct, with a loss, as JSON values; of many, a sample is read. Their
    losses have shape (n,), and `chance` is the loss of guessing, if known.
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
