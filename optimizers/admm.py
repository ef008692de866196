"""ADMM: tune one path, choose a path, pull both together; with limits on other quantities.

Liu, Ram, Vijaykeerthy et al., "An ADMM Based Framework for AutoML Pipeline Configuration" (AAAI
2020). An iteration is a theta-min over the hyperparameters of one path, a projection of integers,
and a z-min over paths at fixed hyperparameters. Every evaluated configuration has integers where
they must be, so the incumbent is valid at any time. Departures from the paper, each an option:
integers are penalised on their unit scale, paths are drawn from a linear model of their best
values, algorithms that were never tuned are tried with random values, and every second iteration
tunes a path that never was.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.augmented_improvement import AugmentedImprovement
from prefect_tune.optimizers.admm_options import AdmmOptions
from prefect_tune.optimizers.admm_state import AdmmState, Observations, observations
from prefect_tune.optimizers.candidates import Candidates
from prefect_tune.optimizers.configuration import Configuration, Query, is_allowed, to_unit
from prefect_tune.optimizers.encoding import Encoding
from prefect_tune.optimizers.gaussian_search import GaussianSearch, Penalty
from prefect_tune.optimizers.grids import grid_of
from prefect_tune.optimizers.history import History
from prefect_tune.optimizers.optimizer import Budget, Optimizer, SpaceExhausted
from prefect_tune.optimizers.path_solvers import PathTable
from prefect_tune.optimizers.phase_lengths import capacity
from prefect_tune.optimizers.random_search import new_configuration
from prefect_tune.optimizers.smac import ForestSearch, SmacOptions
from prefect_tune.optimizers.space import Path, Space
from prefect_tune.optimizers.splitting import distances, integer_update, next_multiplier, reward
from prefect_tune.optimizers.surrogates.gaussian_process import GaussianProcess
from prefect_tune.optimizers.trial import Trial

__all__ = ["Admm"]

Array = NDArray[np.floating[Any]]

_N_INITIAL = 4
"""Points of a path before its process is asked: where it stands, and three random ones."""
_DRAWS_PER_EFFORT = 20
"""Paths drawn in a z-min, most of them seen before, for each new evaluation wanted."""
_EVERY_FIT = 64
"""Up to so many points the process is fitted at each ask, then at each third."""
_REGION = 0.4
"""First side of the trust region, in units."""


class Admm(Optimizer):
    """Alternating direction method of multipliers over paths, integers and numbers."""

    name: ClassVar[str] = "admm"
    Options: ClassVar[type[AdmmOptions]] = AdmmOptions

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.options = self.options.resolved()
        self._state = AdmmState(mu=[0.0] * len(self.objective.constraints))
        self._searches: dict[Path, GaussianSearch] = {}

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:
        observed = observations(
            self.history, self.objective, self.options.failure_cost, self.options.f_hat
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
        values = observed.augmented(self._state.mu, self.options.rho_g)
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
        if state.path != path and self.options.surrogate == "path":
            state.theta = None
        state.block, state.path, state.asked = "theta", path, 0
        state.started_at = len(self.history)
        state.new_in_iteration = 0

    def _theta_min(
        self, observed: Observations, effort: int, rng: np.random.Generator
    ) -> Configuration | None:
        """The next hyperparameters of the path; None when this sub-problem is done."""
        path, solver = self._state.path, self.options.theta_solver
        if self._state.asked >= effort or not self._search(path).has_inputs:
            return None
        if path not in self._state.tuned:
            self._state.tuned.append(path)
        on_path = [t for t in self.history if t.query.configuration.path == path]
        here = self._at_theta(path)
        if here not in self._asked and is_allowed(self.space, here):
            return here
        try:
            is_early = len(on_path) < _N_INITIAL or all(t.loss is None for t in on_path)
            if solver == "random" or is_early:
                return new_configuration(self.space, self._asked, rng, path)
            if solver == "smac":
                return self._by_forest(path, rng)
            return self._improving(observed, path, rng)
        except SpaceExhausted:
            return None

    def _by_forest(self, path: Path, rng: np.random.Generator) -> Configuration:
        history = History()
        for trial in self.history:
            if trial.query.configuration.path == path:
                history.record(trial)
        space = self._subspace(path)
        options = SmacOptions(n_startup=_N_INITIAL, failure_cost=self.options.failure_cost)
        return ForestSearch(space, self.objective, options).propose(history, rng)

    def _improving(
        self, observed: Observations, path: Path, rng: np.random.Generator
    ) -> Configuration:
        """Expected improvement of the augmented loss; the process models f and g, not the sum."""
        search, state = self._search(path), self._state
        on_path = [i for i, t in enumerate(observed.trials) if t.query.configuration.path == path]
        rows = on_path if self.options.surrogate == "path" else list(range(len(observed.trials)))
        live = observed.quantities.any(axis=0)
        targets = np.column_stack([observed.losses[rows], observed.quantities[rows][:, live]])
        process = self._process(search, [observed.trials[i] for i in rows], targets, path, rng)
        candidates = search.encode(observed.trials[i].query.configuration for i in on_path)
        penalty = self._penalty(search, path)
        augmented = observed.augmented(state.mu, self.options.rho_g)[on_path] + penalty(candidates)
        shifts = (np.array(state.mu) / self.options.rho_g - observed.bounds)[live]
        best = float(augmented.min())
        acquisition = AugmentedImprovement(process, best, self.options.rho_g, shifts)
        order = np.argsort(augmented, kind="stable")
        within = None
        if self.options.theta_solver == "trust_region":
            numbers = [observed.trials[i].number for i in on_path]
            within = self._region(candidates[order[:1]], augmented, numbers, search)
        ranked = search.ranked(acquisition, candidates[order], rng, penalty, within)
        for configuration in search.new_configurations(ranked, self._asked):
            return configuration
        return new_configuration(self.space, self._asked, rng, path)

    def _process(
        self,
        search: GaussianSearch,
        trials: list[Trial],
        targets: Array,
        path: Path,
        rng: np.random.Generator,
    ) -> GaussianProcess:
        """The process of these trials; pending ones are taken to return its mean."""
        state = self._state
        inputs = search.inputs(search.encode(t.query.configuration for t in trials))
        theta = None if state.theta is None else np.array(state.theta)
        is_new = len(trials) <= _EVERY_FIT or len(trials) % 3 == 0
        process = search.fit(inputs, targets, rng, theta, is_new=is_new)
        state.theta = [round(float(x), 6) for x in process.theta]
        pending = [t.query.configuration for t in self.history.pending]
        if self.options.surrogate == "path":
            pending = [c for c in pending if c.path == path]
        if pending:
            process = process.imagining(search.inputs(search.encode(pending)))
        return process

    def _penalty(self, search: GaussianSearch, path: Path) -> Penalty:
        """The augmented term of integers as a function of candidates of this path."""
        tables = self._tables(search, path)

        def penalty(points: Candidates) -> Array:
            total = np.zeros(len(points))
            for column, table in tables.items():
                grid = search.grids[column]
                assert grid is not None  # noqa: S101 - tables are made of grids
                total += table[grid.index(points.units[:, column])]
            return total

        return penalty

    def _tables(self, search: GaussianSearch, path: Path) -> dict[int, Array]:
        """By ordered discrete column of the path, (rho / 2) (theta(v) - b)^2 of each value."""
        tables = {}
        chosen = {(s.name, a) for s, a in zip(self.space.searched, path, strict=True)}
        for column, name in enumerate(search.candidates.encoding.columns):
            grid = search.grids[column]
            is_pulled = grid is not None and grid.is_ordered and name[:2] in chosen
            if grid is None or not is_pulled or self.options.rho == 0:
                continue
            key = str(self._columns[name])
            squared = distances(grid, self._delta(key), self._state.dual.get(key, 0.0))
            steps = len(grid.units) - 1 if self.options.units == "raw" else 1
            tables[column] = 0.5 * self.options.rho * steps**2 * squared
        return tables

    def _region(
        self, best: Candidates, values: Array, numbers: list[int], search: GaussianSearch
    ) -> tuple[Array, Array]:
        """A box around the best, twice as wide after a success, half after as many failures as d.

        Success and failure are those of this theta-min.
        """
        d, side, failures = max(best.units.shape[1], 2), _REGION, 0
        for i, number in enumerate(numbers):
            if number < self._state.started_at or i == 0:
                continue
            if values[i] < values[:i].min():
                side, failures = min(2 * side, 1.0), 0
            else:
                failures += 1
                if failures == d:
                    side, failures = max(side / 2, 0.01), 0
        free = np.array([grid is None for grid in search.grids])
        units = best.units[0]
        return np.where(free, np.maximum(units - side / 2, 0), 0.0), np.where(
            free, np.minimum(units + side / 2, 1), 1.0
        )

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
            search = self._search(state.path)
            configurations = [observed.trials[i].query.configuration for i in rows]
            values = observed.augmented(state.mu, self.options.rho_g)[rows]
            values = values + self._penalty(search, state.path)(search.encode(configurations))
            best = configurations[int(np.argmin(values))]
        self._move(best)
        state.block, state.asked, state.draws, state.seen = "z", 0, 0, []

    def _move(self, chosen: Configuration | None) -> None:
        """theta, delta and lambda of all integers, active or not (eqs. 9 and 10)."""
        state, active = self._state, set[str]()
        if chosen is not None:
            units, is_active = self._encoding.to_cube(chosen)
            for column in np.flatnonzero(is_active):
                state.units[str(column)] = float(units[column])
                active.add(str(column))
        for key in sorted(active | {k for k, dual in state.dual.items() if dual}, key=int):
            grid = self._grids[int(key)]
            if grid is None or not grid.is_ordered:
                continue
            index = int(grid.index(state.units[key])) if key in active else None
            dual = state.dual.get(key, 0.0)
            relaxed, delta, dual = integer_update(grid, self._delta(key), dual, index)
            if index is None:
                state.units[key] = float(grid.units[grid.projected(relaxed)])
            state.delta[key] = delta
            state.dual[key] = dual if self.options.rho > 0 else 0.0

    def _z_min(
        self, observed: Observations, effort: int, rng: np.random.Generator
    ) -> Configuration | None:
        """The next path at the hyperparameters of now; None when this sub-problem is done."""
        state, row_of = self._state, observed.row_of()
        values = observed.augmented(state.mu, self.options.rho_g)
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
        if solver in {"linear", "ranks"}:
            model = table.linear(best, is_ranked=solver == "ranks")
            return lambda _: model.draw(rng)
        return lambda drawn: table.improving(best, set(drawn), rng)

    def _end_z(self, observed: Observations) -> None:
        """Choose the path to tune next, move the multipliers of the constraints."""
        state, row_of = self._state, observed.row_of()
        values = observed.augmented(state.mu, self.options.rho_g)
        paths = [t.query.configuration.path for t in observed.trials]
        own = [i for i, p in enumerate(paths) if p == state.path]
        seen = [row_of[n] for n in state.seen if n in row_of]
        rows = sorted({*seen, *own}, key=lambda i: (values[i], i))
        if self.options.z_pick == "alternate" and state.iteration % 2:
            rows = [i for i in rows if paths[i] not in state.tuned] or rows
        path = paths[rows[0]] if rows else state.path
        for k, bound in enumerate(observed.bounds):
            if rows:
                g = float(observed.quantities[rows[0], k])
                state.mu[k] = next_multiplier(g, bound, state.mu[k], self.options.rho_g)
        if rows:
            self._adopt(observed.trials[rows[0]].query.configuration)
        state.iteration += 1
        self._begin_theta(path)

    def _adopt(self, configuration: Configuration) -> None:
        """Start algorithms that were never tuned from the values of this configuration."""
        units, is_active = self._encoding.to_cube(configuration)
        for column in np.flatnonzero(is_active):
            self._state.units.setdefault(str(column), float(units[column]))

    def _unseen(self, rng: np.random.Generator) -> Configuration:
        """After an iteration without an evaluation: a new configuration, whose path goes on."""
        configuration = new_configuration(self.space, self._asked, rng)
        self._begin_theta(configuration.path)
        self._move(configuration)
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
        return [c for p in paths if is_allowed(self.space, c := self._at_theta(p))]

    def _best_path(self, observed: Observations) -> Path:
        values = observed.augmented(self._state.mu, self.options.rho_g)
        if not len(values):
            return self._first_path()
        return observed.trials[int(np.argmin(values))].query.configuration.path

    def _first_path(self) -> Path:
        """The plainest: steps that do nothing where there are any, and naive Bayes (section 5)."""
        wanted = []
        for step in self.space.searched:
            plain = [a for a in step.algorithms if a.passes_on or a.id == "gaussian_nb"]
            least = min(step.algorithms, key=lambda a: a.n_hyperparameters)
            wanted.append((plain[0] if plain else least).id)
        path = tuple(wanted)
        if path in self._table.paths:
            return path
        alike = [sum(a == b for a, b in zip(path, p, strict=True)) for p in self._table.paths]
        return self._table.paths[int(np.argmax(alike))]

    def _at_theta(self, path: Path, rng: np.random.Generator | None = None) -> Configuration:
        """The path with the hyperparameters of now; with `rng`, what was never tuned is drawn."""
        configuration = self._encoding.from_cube(path, self._tuned_units(self._default_units))
        if rng is None or self.options.start == "default":
            return configuration
        if self.options.start == "default_first" and configuration not in self._asked:
            return configuration
        return self._encoding.from_cube(
            path, self._tuned_units(rng.random(len(self._default_units)))
        )

    def _tuned_units(self, others: NDArray[np.float64]) -> NDArray[np.float64]:
        units = others.copy()
        for key, unit in self._state.units.items():
            units[int(key)] = unit
        return units

    def _delta(self, key: str) -> float:
        grid = self._grids[int(key)]
        assert grid is not None  # noqa: S101 - only integers have one
        default = float(grid.positions[int(grid.index(self._default_units[int(key)]))])
        return self._state.delta.get(key, default)

    def _search(self, path: Path) -> GaussianSearch:
        if path not in self._searches:
            part = self._subspace(path)
            is_shared = self.options.surrogate == "shared"
            self._searches[path] = (
                GaussianSearch(self.space, "additive", part) if is_shared else GaussianSearch(part)
            )
        return self._searches[path]

    def _subspace(self, path: Path) -> Space:
        chosen = {s.name: [a] for s, a in zip(self.space.searched, path, strict=True)}
        return self.space.restricted_to(chosen)

    @property
    def _asked(self) -> set[Configuration]:
        return {t.query.configuration for t in self.history}

    @cached_property
    def _table(self) -> PathTable:
        return PathTable(self.space, self.seed)

    @cached_property
    def _encoding(self) -> Encoding:
        return Encoding(self.space)

    @cached_property
    def _columns(self) -> dict[tuple[str, str, str], int]:
        return {column: i for i, column in enumerate(self._encoding.columns)}

    @cached_property
    def _grids(self) -> list[Any]:
        return [grid_of(self._encoding.hyperparameter(c)) for c in self._encoding.columns]

    @cached_property
    def _default_units(self) -> NDArray[np.float64]:
        """Defaults on the unit cube; discrete ones on their values."""
        hyperparameters = [self._encoding.hyperparameter(c) for c in self._encoding.columns]
        return np.array([to_unit(h, h.default_value) for h in hyperparameters])
