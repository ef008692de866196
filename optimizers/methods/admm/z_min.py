"""ADMM's z-min: the next path at fixed hyperparameters (Liu, Ram et al. 2020, eq. 12)."""

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.path_solvers import PathArms
from prefect_tune.optimizers.methods.admm.positions import Positions
from prefect_tune.optimizers.methods.admm.splitting import reward
from prefect_tune.optimizers.methods.admm.state import AdmmState, PathObservations
from prefect_tune.optimizers.paths.shared_values import SharedValues
from prefect_tune.optimizers.space.configuration import Configuration, is_allowed
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.trials.history import History

Array = NDArray[np.floating[Any]]
Draw = Callable[[Collection[Path]], Path]
"""Draws a path, given those drawn before in this ask."""

_DRAWS_PER_EFFORT = 20
"""Paths drawn in a z-min, most of them seen before, for each new evaluation wanted."""


class ZMin:
    """Proposes paths; what it learns from comes with each call.

    Args:
        space: The space.
        seed: Draws the paths that are searched, where there are too many to list.
        options: Which solver, and where an algorithm starts that was never tuned.
        positions: The hyperparameters of now.
        shared: The values that are chosen with the path; None for none.
    """

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

    def count(self, state: AdmmState, observed: PathObservations, rng: np.random.Generator) -> None:
        """Let the bandit earn what its pulls brought since the last ask."""
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
        rng: np.random.Generator,
    ) -> Configuration | None:
        """Return the next path at the hyperparameters of now; None when this z-min is done."""
        row_of, values = observed.row_of(), observed.augmented(state, self._options.rho_g)
        asked = {t.query.configuration: t.number for t in history}
        draw = self._draw(state, observed, values, rng)
        here_on = self._drawn_values(observed, values, rng)
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
        self, observed: PathObservations, values: Array, rng: np.random.Generator
    ) -> Callable[[Configuration], Configuration]:
        """Return what gives configurations the values that are chosen with the path."""
        if self._shared is None:
            return lambda configuration: configuration
        best = self.arms.values(self._shared, observed.trials, values).draw_values(rng)
        return partial(self._shared.applied, best)

    def _earn(
        self,
        state: AdmmState,
        observed: PathObservations,
        row: int,
        values: Array,
        rng: np.random.Generator,
    ) -> None:
        """Pull the arms of an observed trial once, with a Bernoulli reward (algorithm A1)."""
        trial, worst = observed.trials[row], observed.worst_reward_loss
        probability = 0.0 if trial.failure else float(reward(values[row], worst))
        success = int(rng.random() < probability)
        for arm in self.arms.arms_of(trial.query.configuration.path):
            n, r = state.counts.get(arm, (0, 0))
            state.counts[arm] = [n + 1, r + success]

    def _draw(
        self, state: AdmmState, observed: PathObservations, values: Array, rng: np.random.Generator
    ) -> Draw:
        """Return what the solver draws paths with."""
        arms, solver = self.arms, self._options.z_solver
        if solver == "bandit":
            return lambda _: arms.thompson(state.counts, self._options.prior, rng)
        if solver == "random" or not len(values):
            return lambda _: arms.random(rng)
        best: dict[Path, float] = {}
        for trial, value in zip(observed.trials, values, strict=True):
            path = trial.query.configuration.path
            best[path] = min(float(value), best.get(path, np.inf))
        if solver == "linear":
            model = arms.linear(best)
            return lambda _: model.draw(rng)
        return lambda drawn: arms.improving(best, set(drawn), rng)
