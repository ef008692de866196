"""ADMM: tune one path, choose a path, pull both together; with limits on other quantities.

Liu, Ram, Vijaykeerthy et al., "An ADMM Based Framework for AutoML Pipeline Configuration" (AAAI
2020). An iteration is a theta-min over the hyperparameters of one path, a projection of integers,
and a z-min over paths at fixed hyperparameters. Every evaluated configuration has integers where
they must be, so the incumbent is valid at any time. Departures from the paper, each an option:
integers are penalised on their unit scale, each model is tried once before anything is tuned, paths
are drawn from a linear model of their best values, algorithms that were never tuned are tried with
their defaults and then with random values, and every second iteration tunes a path that never was.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.admm.declaration import ADMM
from prefect_tune.optimizers.methods.admm.path_solvers import PathArms
from prefect_tune.optimizers.methods.admm.positions import Positions
from prefect_tune.optimizers.methods.admm.splitting import next_multiplier, reward
from prefect_tune.optimizers.methods.admm.state import AdmmState, Observations, observations
from prefect_tune.optimizers.methods.admm.theta_min import ThetaMin
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Configuration, is_allowed
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.space import Path
from prefect_tune.optimizers.trials.capacity import capacity

__all__ = ["Admm"]

Array = NDArray[np.floating[Any]]

_DRAWS_PER_EFFORT = 20
"""Paths drawn in a z-min, most of them seen before, for each new evaluation wanted."""


class Admm(Optimizer):
    """Alternating direction method of multipliers over paths, integers and numbers.

    Many methods: one for each block of an iteration and each update between two, as the paper has
    them; all act on one state.
    """

    method: ClassVar[Method] = ADMM

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.options = self.options.resolved()
        self._state = AdmmState()
        self._positions = Positions(self.space, self.options)
        self._theta = ThetaMin(self.space, self.objective, self.options, self._positions)

    @property
    def decisions(self) -> dict[str, Any]:
        """Where the iteration stands, as JSON values.

        `iteration`, `tuned` (paths that had a theta-min, the first first), `path` (the one that is
        tuned now) and `multipliers` of the limits that pull.
        """
        state = self._state
        return {
            "iteration": state.iteration,
            "path": list(state.path),
            "tuned": [list(path) for path in state.tuned],
            "multipliers": {name: mu for name, mu in state.mu.items() if mu},
        }

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:
        given = self.options
        observed = observations(
            self.history, self.objective, given.failure_cost, given.f_hat, given.margin
        )
        self._count(observed, rng)
        configuration = self._next(observed, budget, rng)
        self._state.open.append(len(self.history))
        self._state.new_in_iteration += 1
        self.memo = self._state.to_json()
        return Query(configuration)

    def _restore(self, memo: Mapping[str, Any] | None) -> None:
        super()._restore(memo)
        if memo is None:
            self._state.open.append(len(self.history))
        else:
            self._state = AdmmState.from_json(memo)

    def _count(self, observed: Observations, rng: np.random.Generator) -> None:
        """Let the bandit earn what its pulls brought since the last ask."""
        row_of = observed.row_of()
        values = observed.augmented(self._state, self.options.rho_g)
        for number in [n for n in self._state.open if n in row_of]:
            self._state.open.remove(number)
            if number in self._state.pulled:
                self._state.pulled.remove(number)
                self._earn(number, values[row_of[number]], observed, rng)

    def _earn(
        self, number: int, value: float, observed: Observations, rng: np.random.Generator
    ) -> None:
        """One pull of the arms of a trial, with a Bernoulli reward (algorithm A1)."""
        trial = self.history[number]
        probability = 0.0 if trial.failure else float(reward(value, observed.worst_reward_loss))
        success = int(rng.random() < probability)
        for arm in self._table.arms_of(trial.query.configuration.path):
            n, r = self._state.counts.get(arm, (0, 0))
            self._state.counts[arm] = [n + 1, r + success]

    def _next(
        self, observed: Observations, budget: Budget, rng: np.random.Generator
    ) -> Configuration:
        state = self._state
        if state.block == "start":
            first = next((c for c in self._first if c not in self._asked), None)
            if first is not None:
                state.path = first.path
                return first
            self._begin_theta(self._best_path(observed))
        while True:
            effort = self._effort(budget)
            if state.block == "theta":
                configuration = self._theta_min(observed, effort, rng)
                if configuration is not None:
                    state.asked += 1
                    return configuration
                self._end_theta(observed)
            configuration = self._z_min(observed, effort, rng)
            if configuration is not None:
                state.asked += 1
                return configuration
            is_stalled = state.new_in_iteration == 0
            self._end_z(observed)
            if is_stalled:
                return self._unseen(rng)

    def _effort(self, budget: Budget) -> int:
        """I + t F, at most the largest (adaptive ADMM, section 5)."""
        first, step = self.options.efforts(capacity(budget, self.history))
        most: int = self.options.max_effort
        effort: int = min(first + step * self._state.iteration, most)
        return effort

    def _begin_theta(self, path: Path) -> None:
        state = self._state
        if state.path != path:
            state.theta = None
        state.block, state.path, state.asked = "theta", path, 0
        state.started_at = len(self.history)
        state.new_in_iteration = 0

    def _theta_min(
        self, observed: Observations, effort: int, rng: np.random.Generator
    ) -> Configuration | None:
        """The next hyperparameters of the path; None when this sub-problem is done."""
        path = self._state.path
        if self._state.asked >= effort or not self._theta.search(path).has_choices:
            return None
        if path not in self._state.tuned:
            self._state.tuned.append(path)
        here = self._positions.at(self._state, path)
        if here not in self._asked and is_allowed(self.space, here):
            return here
        try:
            return self._theta.propose(self._state, observed, self.history, rng)
        except SpaceExhausted:
            return None

    def _end_theta(self, observed: Observations) -> None:
        """Take the best observed hyperparameters of the path; project integers, move multipliers.

        The best is the least augmented value among all trials of the path, so earlier ones count
        again with the penalties of now.
        """
        state = self._state
        rows = [
            i
            for i, t in enumerate(observed.trials)
            if t.query.configuration.path == state.path and not t.failure
        ]
        best: Configuration | None = None
        if rows:
            search = self._theta.search(state.path)
            configurations = [observed.trials[i].query.configuration for i in rows]
            values = observed.augmented(state, self.options.rho_g)[rows]
            values = values + self._theta.penalty(state)(search.inputs.encode(configurations))
            best = configurations[int(np.argmin(values))]
        self._positions.move(state, best)
        state.block, state.asked, state.draws, state.seen = "z", 0, 0, []

    def _z_min(
        self, observed: Observations, effort: int, rng: np.random.Generator
    ) -> Configuration | None:
        """The next path at the hyperparameters of now; None when this sub-problem is done."""
        state, row_of = self._state, observed.row_of()
        values = observed.augmented(state, self.options.rho_g)
        asked = {t.query.configuration: t.number for t in self.history}
        draw = self._path_source(observed, values, rng)
        at_theta: dict[Path, Configuration | None] = {}
        while state.asked < effort and state.draws < _DRAWS_PER_EFFORT * effort:
            state.draws += 1
            path = draw(at_theta.keys())
            if path not in at_theta:
                configuration = self._at_theta(path, rng)
                is_valid = is_allowed(self.space, configuration)
                at_theta[path] = configuration if is_valid else None
            configuration_or_none = at_theta[path]
            if configuration_or_none is None:
                continue
            number = asked.get(configuration_or_none)
            if number is None:
                state.seen.append(len(self.history))
                state.pulled.append(len(self.history))
                return configuration_or_none
            if number not in state.seen:
                state.seen.append(number)
            if number in row_of and self.options.z_solver == "bandit":
                self._earn(number, values[row_of[number]], observed, rng)
        return None

    def _path_source(self, observed: Observations, values: Array, rng: np.random.Generator) -> Any:
        """A function that draws a path, given those drawn before in this ask."""
        table, solver = self._table, self.options.z_solver
        if solver == "bandit":
            return lambda _: table.thompson(self._state.counts, self.options.prior, rng)
        if solver == "random" or not len(values):
            return lambda _: table.random(rng)
        best: dict[Path, float] = {}
        for trial, value in zip(observed.trials, values, strict=True):
            path = trial.query.configuration.path
            best[path] = min(float(value), best.get(path, np.inf))
        if solver == "linear":
            model = table.linear(best)
            return lambda _: model.draw(rng)
        return lambda drawn: table.improving(best, set(drawn), rng)

    def _at_theta(self, path: Path, rng: np.random.Generator) -> Configuration:
        """The path with the hyperparameters of now, for a z-min."""
        here = self._positions.at(self._state, path)
        start = self.options.start
        if start == "default" or (start == "default_first" and here not in self._asked):
            return here
        drawn = rng.random(self._positions.n_columns)
        return self._positions.at(self._state, path, drawn)

    def _end_z(self, observed: Observations) -> None:
        """Choose the path to tune next, move the multipliers of the constraints."""
        state, row_of = self._state, observed.row_of()
        values = observed.augmented(state, self.options.rho_g)
        paths = [t.query.configuration.path for t in observed.trials]
        own = [i for i, p in enumerate(paths) if p == state.path]
        seen = [row_of[n] for n in state.seen if n in row_of]
        rows = sorted({*seen, *own}, key=lambda i: (values[i], i))
        if self.options.z_pick == "alternate" and state.iteration % 2:
            rows = [i for i in rows if paths[i] not in state.tuned] or rows
        path = paths[rows[0]] if rows else state.path
        multipliers = observed.multipliers(state)
        for k, name in enumerate(observed.constraints if rows else ()):
            g, bound = float(observed.quantities[rows[0], k]), float(observed.bounds[k])
            state.mu[name] = next_multiplier(g, bound, multipliers[k], self.options.rho_g)
        if rows:
            self._positions.adopt(state, observed.trials[rows[0]].query.configuration)
        state.iteration += 1
        self._begin_theta(path)

    def _unseen(self, rng: np.random.Generator) -> Configuration:
        """After an iteration without an evaluation: a new configuration, whose path goes on."""
        configuration = new_configuration(self.space, self._asked, rng)
        self._begin_theta(configuration.path)
        self._positions.move(self._state, configuration)
        return configuration

    @cached_property
    def _first(self) -> list[Configuration]:
        """What is asked for before the first iteration: the plainest path, and one per model."""
        paths = [self._first_path()]
        if self.options.first == "models":
            *before, _ = paths[0]
            known = set(self._table.paths)
            each = [(*before, a.id) for a in self.space.searched[-1].algorithms]
            paths += [p for p in each if p in known and p != paths[0]]
        return [c for p in paths if is_allowed(self.space, c := self._positions.at(self._state, p))]

    def _best_path(self, observed: Observations) -> Path:
        values = observed.augmented(self._state, self.options.rho_g)
        if not len(values):
            return self._first_path()
        return observed.trials[int(np.argmin(values))].query.configuration.path

    def _first_path(self) -> Path:
        """The plainest: steps that do nothing where there are any, and naive Bayes (section 5)."""
        wanted = []
        for step in self.space.searched:
            plain = [a for a in step.algorithms if a.is_passthrough or a.id == "gaussian_nb"]
            least = min(step.algorithms, key=lambda a: a.n_hyperparameters)
            wanted.append((plain[0] if plain else least).id)
        path = tuple(wanted)
        if path in self._table.paths:
            return path
        alike = [sum(a == b for a, b in zip(path, p, strict=True)) for p in self._table.paths]
        return self._table.paths[int(np.argmax(alike))]

    @property
    def _asked(self) -> set[Configuration]:
        return {t.query.configuration for t in self.history}

    @cached_property
    def _table(self) -> PathArms:
        return PathArms(self.space, self.seed)
