"""ADMM's z-min: the next path at fixed hyperparameters (Liu, Ram et al. 2020, eq. 12).

All solvers choose among the runnable paths. Thompson sampling with Bernoulli rewards is algorithm
A1 of the paper. The linear solver regresses the best value of each path on its algorithms.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

import numpy as np
from numpy.random import Generator
from scipy.linalg import solve_triangular

from prefect_tune.optimizers.acquisitions.expected_improvement import log_expected_improvement
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.splitting import reward
from prefect_tune.optimizers.methods.admm.state import (
    AdmmState,
    Counts,
    PathObservations,
    Positions,
)
from prefect_tune.optimizers.paths.shared_values import SharedValues
from prefect_tune.optimizers.paths.table import listed_paths
from prefect_tune.optimizers.space.algorithm import Algorithm, Step
from prefect_tune.optimizers.space.configuration import Configuration, is_allowed
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.surrogates.kernel import Constant, Matern52
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.trial import Trial

_NOISE = 0.3
"""Deviation of the linear model's noise, in standardised values."""


class PathArms:
    """The paths of a space as rows of bandit arms, so that one pass scores all of them.

    Each algorithm is an arm. An order of T steps has T arms, one per step and place. The best order
    is an assignment of steps to places. If the paths are too many to list, `seed` samples them.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._arms_of = [{a.id: _arms(s, a) for a in s.algorithms} for s in space.searched]
        each = [arm for arms in self._arms_of for of_one in arms.values() for arm in of_one]
        self.arms = list(dict.fromkeys(each))
        self.paths = paths = listed_paths(space, seed)
        place = {arm: i for i, arm in enumerate(self.arms)}
        pulled = [
            chain(*(arms[a] for arms, a in zip(self._arms_of, path, strict=True))) for path in paths
        ]
        self._columns = np.array([[place[arm] for arm in arms] for arms in pulled])
        self._sizes = [len(set(chain(*arms.values()))) for arms in self._arms_of]
        self._index = {path: i for i, path in enumerate(paths)}

    def arms_of(self, path: Path) -> list[str]:
        """Return the arms that a path pulls."""
        return [self.arms[c] for c in self._columns[self._index[path]]]

    def thompson(self, counts: Counts, prior: float, rng: Generator) -> Path:
        """Return the path of largest sum of draws from Beta(prior + r, prior + n - r) (eq. A38)."""
        pulled = np.array([counts.get(arm, [0, 0]) for arm in self.arms])
        n, r = pulled.T
        draws = rng.beta(prior + r, prior + n - r)
        return self.least(-draws)

    def linear(self, values: Mapping[Path, float]) -> "LinearModel":
        """Return the posterior of a linear model of the best value of each path."""
        return self._learned(*self._one_hot(values))

    def values(self, shared: SharedValues, trials: Sequence[Trial], losses: Array) -> "LinearModel":
        """Return the posterior of a linear model of losses on algorithms and shared values."""
        known = [i for i, t in enumerate(trials) if t.query.configuration.path in self._index]
        configurations = [trials[i].query.configuration for i in known]
        places = [self._index[c.path] for c in configurations]
        paths = np.eye(len(self.arms))[self._columns[places]].sum(axis=1)
        rows = np.hstack([paths, shared.columns(configurations)])
        return self._learned(rows, _standardised(losses[known]))

    def _learned(self, rows: Array, targets: Array) -> "LinearModel":
        precision = rows.T @ rows / _NOISE**2 + len(self._sizes) * np.eye(rows.shape[1])
        mean = np.linalg.solve(precision, rows.T @ targets / _NOISE**2)
        return LinearModel(mean, np.linalg.cholesky(precision))

    def least(self, weights: Array) -> Path:
        """Return the path with the smallest sum of arm weights, shape (N,)."""
        return self.paths[int(np.argmin(weights[self._columns].sum(axis=1)))]

    def improving(self, values: Mapping[Path, float], excluded: set[Path], rng: Generator) -> Path:
        """Return the path of largest expected improvement by a GP over one-hot paths."""
        rows, targets = self._one_hot(values)
        groups = np.repeat(np.arange(len(self._sizes)), self._sizes)
        kernel = Constant() * Matern52(range(rows.shape[1]), groups)
        process = GaussianProcess.fit(kernel, rows, targets, rng=rng, max_iterations=20)
        left = [i for i, path in enumerate(self.paths) if path not in excluded]
        if not left:
            return self.random(rng)
        candidates = np.eye(len(self.arms))[self._columns[left]].sum(axis=1)
        mean, deviation = process.predict(candidates)
        scores = log_expected_improvement(mean, deviation, float(targets.min()))
        return self.paths[left[int(np.argmax(scores))]]

    def random(self, rng: Generator) -> Path:
        """Return a path drawn uniformly."""
        return self.paths[int(rng.integers(len(self.paths)))]

    def _one_hot(self, values: Mapping[Path, float]) -> tuple[Array, Array]:
        known = [path for path in values if path in self._index]
        columns = self._columns[[self._index[path] for path in known]]
        rows = np.eye(len(self.arms))[columns].sum(axis=1)
        return rows, _standardised(np.array([values[path] for path in known]))


def _standardised(targets: Array) -> Array:
    if not len(targets):
        return targets
    return (targets - targets.mean()) / (float(targets.std()) or 1.0)


def _arms(step: Step, algorithm: Algorithm) -> list[str]:
    if not algorithm.order:
        return [f"{step.name}/{algorithm.id}"]
    return [f"{step.name}/{name}@{place}" for place, name in enumerate(algorithm.order)]


@dataclass(frozen=True, slots=True)
class LinearModel:
    """Normal posterior, with L L' = precision, of coefficients of algorithms and shared values."""

    mean: Array
    root: Array

    def draw(self, rng: Generator) -> Array:
        """Return drawn coefficients, shape (N + S,) (linear Thompson sampling)."""
        noise = rng.standard_normal(len(self.mean))
        return self.mean + solve_triangular(self.root, noise, lower=True, trans="T")


Draw = Callable[[Collection[Path]], Path]
"""Function that draws a path, given the paths drawn earlier in this ask."""

_DRAWS_PER_EFFORT = 20
"""Number of draws in a z-min for each new evaluation wanted; most draws are known paths."""


class ZMin:
    """Proposes paths; stateless between calls."""

    def __init__(
        self,
        space: Space,
        seed: int,
        options: AdmmOptions,
        positions: Positions,
        shared: SharedValues | None,
    ) -> None:
        self._space, self._seed = space, seed
        self._options, self._positions, self._shared = options, positions, shared

    @cached_property
    def arms(self) -> PathArms:
        """The paths as arms of the bandit."""
        return PathArms(self._space, self._seed)

    def count(self, state: AdmmState, observed: PathObservations, rng: Generator) -> None:
        """Update the bandit with the outcomes of its pulls since the last ask."""
        row_of = observed.row_of()
        values = observed.augmented(state, self._options.rho_g)
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
        """Return the next path at the current hyperparameters; None when this z-min is done."""
        row_of, values = observed.row_of(), observed.augmented(state, self._options.rho_g)
        asked = {t.query.configuration: t.number for t in history}
        older = history.older.share()
        of_older = observed.scaled(np.array([t.loss for t in older], dtype=np.float64))
        known, known_values = [*observed.trials, *older], np.append(values, of_older)
        draw = self._draw(state, known, known_values, rng)
        here_on = self._drawn_values(known, known_values, rng)
        at_theta: dict[Path, Configuration | None] = {}
        while state.asked < effort and state.draws < _DRAWS_PER_EFFORT * effort:
            state.draws += 1
            path = draw(at_theta.keys())
            if path not in at_theta:
                here = here_on(self._positions.at(state, path))
                if self._options.start == "default_first" and here in asked:
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
            if number in row_of and self._options.z_solver == "bandit":
                self._earn(state, observed, row_of[number], values, rng)
        return None

    def _drawn_values(
        self, trials: Sequence[Trial], values: Array, rng: Generator
    ) -> Callable[[Configuration], Configuration]:
        if self._shared is None:
            return lambda configuration: configuration
        drawn = self.arms.values(self._shared, trials, values).draw(rng)
        best = self._shared.best(drawn[-self._shared.width :])
        return partial(self._shared.applied, best)

    def _earn(
        self, state: AdmmState, observed: PathObservations, row: int, values: Array, rng: Generator
    ) -> None:
        """Pull the arms of an observed trial once, with a Bernoulli reward (algorithm A1)."""
        trial, worst = observed.trials[row], observed.worst_reward_loss
        probability = 0.0 if trial.failure else float(reward(values[row], worst))
        success = int(rng.random() < probability)
        for arm in self.arms.arms_of(trial.query.configuration.path):
            n, r = state.counts.get(arm, (0, 0))
            state.counts[arm] = [n + 1, r + success]

    def _draw(
        self, state: AdmmState, trials: Sequence[Trial], values: Array, rng: Generator
    ) -> Draw:
        arms, solver = self.arms, self._options.z_solver
        if solver == "bandit":
            return lambda _: arms.thompson(state.counts, self._options.prior, rng)
        if solver == "random" or not len(values):
            return lambda _: arms.random(rng)
        best: dict[Path, float] = {}
        for trial, value in zip(trials, values, strict=True):
            path = trial.query.configuration.path
            best[path] = min(float(value), best.get(path, np.inf))
        if solver == "linear":
            model = arms.linear(best)
            return lambda _: arms.least(model.draw(rng))
        return lambda drawn: arms.improving(best, set(drawn), rng)
