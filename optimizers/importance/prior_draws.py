"""The inputs of a space as independent uniform draws, and the candidates that they stand for."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats.qmc import Sobol

from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.candidates import Candidates

__all__ = ["Input", "PriorDraws", "inputs_of"]


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
