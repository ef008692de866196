"""ADMM's z-min: the next path at fixed hyperparameters (Liu, Ram et al. 2020, eq. 12).

Both solvers choose among the runnable paths. The paper's solver is Thompson sampling with Bernoulli
rewards (algorithm A1). The default solver regresses the lowest loss of each path on the algorithms
of the path, and draws the coefficients.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular

from prefect_tune.optimizers.methods.admm.splitting import (
    AdmmState,
    PathObservations,
    Positions,
    reward,
)
from prefect_tune.optimizers.methods.flash.shared_values import SharedValues
from prefect_tune.optimizers.models.path_linear import RIDGE
from prefect_tune.optimizers.space.configuration import Configuration, is_allowed
from prefect_tune.optimizers.space.sampling import ATTEMPTS, listed_paths
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

_PRIOR = 10.0
"""Both parameters of the bandit's Beta prior."""


Draw = Callable[[Generator], Array]
"""Function that draws coefficients from their normal posterior (linear Thompson sampling).

The coefficients belong to the N arms and the S shared values, shape (N + S,), or to the arms alone.
"""


class PathArms:
    """The paths of a space as rows of bandit arms, so that one pass scores all paths.

    Each algorithm is an arm. An order of T steps pulls T arms, one for each step at its position.
    If the space has too many paths to list, `seed` samples them.
    """

    def __init__(self, space: Space, seed: int) -> None:
        arms_of = [
            {
                a.id: [f"{s.name}/{name}@{place}" for place, name in enumerate(a.order)]
                or [f"{s.name}/{a.id}"]
                for a in s.algorithms
            }
            for s in space.searched
        ]
        each = [arm for arms in arms_of for of_one in arms.values() for arm in of_one]
        self.arms = list(dict.fromkeys(each))
        self.paths = listed_paths(space, seed)
        place = {arm: i for i, arm in enumerate(self.arms)}
        pulled = [
            chain(*(arms[a] for arms, a in zip(arms_of, path, strict=True))) for path in self.paths
        ]
        self._columns = np.array([[place[arm] for arm in arms] for arms in pulled])
        self._n_steps = len(arms_of)
        self._index = {path: i for i, path in enumerate(self.paths)}

    def arms_of(self, path: Path) -> list[str]:
        """Return the arms that a path pulls."""
        return [self.arms[c] for c in self._columns[self._index[path]]]

    def thompson(self, counts: Mapping[str, list[int]], rng: Generator) -> Path:
        """Return the path with the largest sum of draws from Beta(prior + r, prior + n - r).

        `counts` gives the n pulls and r successes of each arm (eq. A38).
        """
        pulled = np.array([counts.get(arm, [0, 0]) for arm in self.arms])
        n, r = pulled.T
        return self.least(-rng.beta(_PRIOR + r, _PRIOR + n - r))

    def linear(self, values: Mapping[Path, float]) -> Draw:
        """Return a sampler of the coefficients of a linear model of each path's lowest loss."""
        known = [path for path in values if path in self._index]
        targets = np.array([values[path] for path in known])
        return self._learned(self._one_hot(known), targets)

    def values(self, shared: SharedValues, trials: Sequence[Trial], losses: Array) -> Draw:
        """Return a sampler of the coefficients of a linear model of `losses`, shape (n,).

        The model's inputs are the algorithms and shared values of the trials.
        """
        known = [i for i, t in enumerate(trials) if t.query.configuration.path in self._index]
        configurations = [trials[i].query.configuration for i in known]
        paths = self._one_hot([c.path for c in configurations])
        return self._learned(np.hstack([paths, shared.columns(configurations)]), losses[known])

    def least(self, weights: Array) -> Path:
        """Return the path with the smallest sum of arm weights, shape (N,)."""
        return self.paths[int(np.argmin(weights[self._columns].sum(axis=1)))]

    def _one_hot(self, paths: Sequence[Path]) -> Array:
        places = [self._index[path] for path in paths]
        return np.eye(len(self.arms))[self._columns[places]].sum(axis=1)

    def _learned(self, rows: Array, targets: Array) -> Draw:
        if len(targets):
            targets = (targets - targets.mean()) / (float(targets.std()) or 1.0)
        precision = rows.T @ rows / RIDGE + self._n_steps * np.eye(rows.shape[1])
        mean = np.linalg.solve(precision, rows.T @ targets / RIDGE)
        root = np.linalg.cholesky(precision)

        def draw(rng: Generator) -> Array:
            noise = rng.standard_normal(len(mean))
            return mean + solve_triangular(root, noise, lower=True, trans="T")

        return draw


class ZMin:
    """Proposes paths, using the paper's solver if `is_paper`. Calls change only the given state."""

    def __init__(
        self,
        space: Space,
        seed: int,
        positions: Positions,
        shared: SharedValues | None,
        *,
        is_paper: bool,
    ) -> None:
        self._space, self._seed, self._is_paper = space, seed, is_paper
        self._positions, self._shared = positions, shared

    @cached_property
    def arms(self) -> PathArms:
        """The paths of the space as arms of the bandit."""
        return PathArms(self._space, self._seed)

    def count(self, state: AdmmState, observed: PathObservations, rng: Generator) -> None:
        """Update the bandit with the outcomes of pulls reported since the last ask."""
        row_of, values = observed.row_of(), observed.augmented(state)
        for number in [n for n in state.open if n in row_of]:
            state.open.remove(number)
            if number in state.pulled:
                state.pulled.remove(number)
                self._earn(state, observed, row_of[number], values, rng)

    def propose(
        self,
        state: AdmmState,
        observed: PathObservations,
        history: History,
        effort: int,
        rng: Generator,
    ) -> Configuration | None:
        """Return the next path, with the current hyperparameters; None once this z-min is done.

        The default solver tries each algorithm that was never tuned, first with default values and
        then with random values.
        """
        row_of, values = observed.row_of(), observed.augmented(state)
        asked = {t.query.configuration: t.number for t in history}
        older = history.older.subsample()
        of_older = observed.scaled(np.array([t.loss for t in older], dtype=np.float64))
        known, known_values = [*observed.trials, *older], np.append(values, of_older)
        draw = self._draw(state, known, known_values, rng)
        here_on = self._drawn_values(known, known_values, rng)
        at_theta: dict[Path, Configuration | None] = {}
        while state.asked < effort and state.draws < ATTEMPTS * effort:
            state.draws += 1
            path = draw()
            if path not in at_theta:
                here = here_on(self._positions.at(state, path))
                if not self._is_paper and here in asked:
                    others = rng.random(self._positions.n_columns)
                    here = here_on(self._positions.at(state, path, others))
                at_theta[path] = here if is_allowed(self._space, here) else None
            configuration = at_theta[path]
            if configuration is None:
                continue
            number = asked.get(configuration)
            if number is None:
                state.seen.append(len(history))
                state.pulled.append(len(history))
                return configuration
            if number not in state.seen:
                state.seen.append(number)
            if number in row_of and self._is_paper:
                self._earn(state, observed, row_of[number], values, rng)
        return None

    def _draw(
        self, state: AdmmState, trials: Sequence[Trial], values: Array, rng: Generator
    ) -> Callable[[], Path]:
        arms = self.arms
        if self._is_paper:
            return lambda: arms.thompson(state.counts, rng)
        if not len(values):
            return lambda: arms.paths[int(rng.integers(len(arms.paths)))]
        best: dict[Path, float] = {}
        for trial, value in zip(trials, values, strict=True):
            path = trial.query.configuration.path
            best[path] = min(float(value), best.get(path, np.inf))
        model = arms.linear(best)
        return lambda: arms.least(model(rng))

    def _drawn_values(
        self, trials: Sequence[Trial], values: Array, rng: Generator
    ) -> Callable[[Configuration], Configuration]:
        if self._shared is None:
            return lambda configuration: configuration
        drawn = self.arms.values(self._shared, trials, values)(rng)
        best = self._shared.best(drawn[-self._shared.width :])
        return partial(self._shared.applied, best)

    def _earn(
        self, state: AdmmState, observed: PathObservations, row: int, values: Array, rng: Generator
    ) -> None:
        """Count a pull of each arm of an observed trial, with a Bernoulli reward (algorithm A1)."""
        trial, worst = observed.trials[row], observed.worst_reward_loss
        probability = 0.0 if trial.failure else float(reward(values[row], worst))
        success = int(rng.random() < probability)
        for arm in self.arms.arms_of(trial.query.configuration.path):
            n, r = state.counts.get(arm, (0, 0))
            state.counts[arm] = [n + 1, r + success]
