"""The importance of the choices of a study: functional ANOVA on random forests.

Hutter, Hoos and Leyton-Brown, An efficient approach for assessing hyperparameter importance, ICML
2014, on the encoding of conditional spaces that the forests of SMAC and FLASH search by. Unlike
there, choices of algorithms are inputs as hyperparameters are, the shares are Sobol' indices
estimated from draws of the prior, and each forest is fitted to a bootstrap of the trials, so that
the spread over the forests says how sure a share is. Inputs are drawn as independent uniforms, each
of which stands for a choice of a candidate. Losses above a bound count as the bound: guessing, or
the upper fence of Tukey's box plot where that is less. Otherwise a few useless corners of the space
would make most of the variance, and nothing would be said of the rest.
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
    """One thing to choose in a space.

    Attributes:
        step: Name of the step.
        algorithm: Whose hyperparameter it is; None for the choice of the algorithm itself.
        hyperparameter: Its name; None likewise.
    """

    step: str
    algorithm: str | None = None
    hyperparameter: str | None = None


def inputs_of(space: CandidateSpace) -> tuple[Input, ...]:
    """Return the choice of each searched step, then all hyperparameters, K + d in all."""
    choices = (Input(step.name) for step in space.space.searched)
    return (*choices, *(Input(*column) for column in space.encoding.columns))


class PriorDraws:
    """Pairs of independent draws A and B of a space's prior, as Saltelli et al. (2010) need them.

    Each input is drawn by itself: an algorithm of each step evenly, a position of each
    hyperparameter evenly on its scale. A hyperparameter that is not active, and the choice at a
    step that the model ignores, then simply have no effect, which makes the decomposition of the
    variance well defined on a conditional space. Paths that cannot run are drawn too: without them
    the choices would not be independent.

    Args:
        space: The space, of K searched steps and d hyperparameters.
        n: How many pairs, a power of 2.
        seed: Of the scrambled Sobol' sequence that they are taken from.
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
        """Return the rows of A that another value of one input makes another pipeline of.

        Args:
            position: Of the input.

        Returns:
            The rows, shape (m,), and these rows of A with that input taken from B.
        """
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
"""From features, shape (m, N + d), to predictions of s models, shape (s, m)."""
_N_DRAWS = 2048
_AT_ONCE = 16
"""Inputs whose changed rows are predicted together; more would take more memory."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The share of the variance of the loss that one input makes.

    Attributes:
        input: What is chosen.
        main: Share that it makes by itself, averaged over all others; 0 to 1.
        main_deviation: Standard deviation of that share over the models.
        total: Share that it has a part in, together with others too; 0 to 1.
        total_deviation: Standard deviation of that share over the models.
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

    The estimators are those of Saltelli et al. (2010), over A, B and A with one column of B at a
    time. On a conditional space most inputs are not active in most rows, which then are as they
    were: only the others are predicted again, so the work grows with what is active in a pipeline
    and not with the hyperparameters of the space.

    A model that predicts the same everywhere has no variance to split, and is left out; if all
    do, there are no effects.

    Args:
        space: The space.
        predict: Predictions of s models, for instance one per bootstrap of the trials.
        seed: Of the draws.
        n: How many draws, a power of 2.
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
    """Return the predictions of A with each of some inputs taken from B, shape (k, s, n)."""
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
    """Return mean and standard deviation over the models; estimates below 0 are noise of 0."""
    return float(np.clip(shares.mean(), 0.0, 1.0)), float(shares.std())


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
        """Return what each forest predicts of m configurations, shape (forests, m)."""
        return np.array([forest.predict(X)[0] for forest in self._forests])


def _r2(y: Array, left_out: Array) -> float:
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
