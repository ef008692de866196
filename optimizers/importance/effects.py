"""The variance of a model of the loss, split among the inputs of a space (functional ANOVA).

Inputs are drawn as independent uniforms, each of which stands for a choice of a candidate.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import sobol_indices
from scipy.stats.qmc import Sobol

from prefect_tune.optimizers.space.candidate_space import Candidates, CandidateSpace


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

    def features_a(self) -> NDArray[np.float64]:
        """Return A as the features of a model."""
        return self._space.features(self._as_run(self.a))

    def features_b(self) -> NDArray[np.float64]:
        """Return B as the features of a model."""
        return self._space.features(self._as_run(self._b))

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

    def _candidates(self, draws: NDArray[np.float64]) -> Candidates:
        sizes = np.array([len(step.algorithms) for step in self._space.space.searched])
        chosen = np.minimum((draws[:, : self._n_steps] * sizes).astype(np.intp), sizes - 1)
        return Candidates(chosen, draws[:, self._n_steps :])

    def _as_run(self, drawn: Candidates) -> Candidates:
        return Candidates(self._space.settled(drawn.algorithms), drawn.units)


Predict = Callable[[NDArray[np.float64]], NDArray[np.float64]]
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
    f_a, f_b = predict(draws.features_a()), predict(draws.features_b())
    varying = np.flatnonzero(np.ptp(np.hstack((f_a, f_b)), axis=1) > 0)
    if not len(varying):
        return []
    f_a, f_b = f_a[varying], f_b[varying]

    def varied(features: NDArray[np.float64]) -> NDArray[np.float64]:
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
    space: CandidateSpace,
    draws: PriorDraws,
    predict: Predict,
    f_a: NDArray[np.float64],
    positions: range,
) -> NDArray[np.float64]:
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


def _summed(shares: NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and standard deviation over the models; estimates below 0 are noise of 0."""
    return float(np.clip(shares.mean(), 0.0, 1.0)), float(shares.std())
