"""ADMM's theta-min: the next hyperparameters of one path (Liu, Ram et al. 2020, eq. 8).

The Gaussian process models the loss and the constraint values. The rest of the augmented sum is
known, so the current penalties also apply to observations of earlier iterations.
"""

from dataclasses import replace

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.acquisitions.expected_improvement import AugmentedImprovement
from prefect_tune.optimizers.acquisitions.gaussian_search import (
    Fitted,
    GaussianSearch,
    Penalty,
    maximise,
)
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.state import AdmmState, PathObservations, Positions
from prefect_tune.optimizers.methods.declarations import SmacOptions
from prefect_tune.optimizers.methods.smac import ForestSearch
from prefect_tune.optimizers.space.candidate_space import Candidates
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective

_N_INITIAL = 4
"""Number of points of a path before its process is used: the current one and three random ones."""
_REGION = 0.4
"""Initial side length of the trust region, in units."""


class ThetaMin:
    """Proposes hyperparameters for paths; stateless between calls."""

    def __init__(
        self, space: Space, objective: Objective, options: AdmmOptions, positions: Positions
    ) -> None:
        self.space, self.objective, self.options = space, objective, options
        self._positions = positions
        self._searches: dict[Path, GaussianSearch] = {}

    def propose(
        self, state: AdmmState, observed: PathObservations, history: History, rng: Generator
    ) -> Query:
        """Return a new query of the path being tuned, or raise `SpaceExhausted` if it has none."""
        path, solver = state.path, self.options.theta_solver
        on_path = [t for t in history if t.query.configuration.path == path]
        n_known = len(on_path) + len(history.older.on(path))
        is_early = n_known < _N_INITIAL or all(t.loss is None for t in on_path)
        if solver == "random" or is_early:
            return Query(new_configuration(self.space, history.asked, rng, path))
        if solver == "smac":
            return self._by_forest(state, observed, history, rng)
        return Query(self._improving(state, observed, history, rng))

    def search(self, path: Path) -> GaussianSearch:
        """Return the cached search tables of a path."""
        if path not in self._searches:
            self._searches[path] = GaussianSearch(self._subspace(path))
        return self._searches[path]

    def penalty(self, state: AdmmState) -> Penalty:
        """Return the augmented term of integers as a function of candidates of the state's path."""
        search = self.search(state.path)
        tables = self._positions.penalties(state, search, state.path)

        def penalty(points: Candidates) -> Array:
            total = np.zeros(len(points))
            for column, table in tables.items():
                grid = search.inputs.grids[column]
                assert grid is not None  # noqa: S101 - tables are made of grids
                total += table[grid.index(points.units[:, column])]
            return total

        return penalty

    def _by_forest(
        self, state: AdmmState, observed: PathObservations, history: History, rng: Generator
    ) -> Query:
        path = state.path
        encoded = self.search(path)
        row_of, values = observed.row_of(), observed.augmented(state, self.options.rho_g)
        penalty = self.penalty(state)
        on_path = History()
        of_failures = [np.inf]
        for trial in (t for t in history if t.query.configuration.path == path):
            seen = trial
            if trial.evaluation is not None and trial.number in row_of:
                pulled = float(penalty(encoded.inputs.encode([trial.query.configuration]))[0])
                loss = float(values[row_of[trial.number]]) + pulled
                seen = replace(trial, evaluation=replace(trial.evaluation, loss=loss))
            elif trial.failure is not None:
                of_failures.append(float(values[row_of[trial.number]]))
            on_path.record(seen)
        # Augmented losses may be negative, but shares of a range are not. All failures count alike.
        is_share = np.isfinite(self.objective.upper - self.objective.lower)
        objective = Objective("augmented", "", 0.0 if is_share else -np.inf, min(of_failures))
        options = SmacOptions(n_startup=_N_INITIAL, failure_cost="bound")
        query, _ = ForestSearch(self._subspace(path), objective, options).propose(on_path, rng)
        return query

    def _improving(
        self, state: AdmmState, observed: PathObservations, history: History, rng: Generator
    ) -> Configuration:
        """Maximise the expected improvement of the augmented loss; f and g have separate models."""
        path, search = state.path, self.search(state.path)
        rows = [i for i, t in enumerate(observed.trials) if t.query.configuration.path == path]
        live = observed.quantities.any(axis=0)
        targets = np.column_stack([observed.losses[rows], observed.quantities[rows][:, live]])
        pending = [t.query.configuration for t in history.pending]
        pending = [c for c in pending if c.path == path]
        candidates = search.inputs.encode(observed.trials[i].query.configuration for i in rows)
        last = None if state.theta is None else Fitted(tuple(state.theta), state.fitted)
        penalty, mean = self.penalty(state), self._older_mean(path, observed, history)
        if mean is not None:
            # A process of the distances from the mean, which returns with the penalty.
            targets[:, 0] -= mean(candidates)
        process, fitted = search.learned(candidates, targets, rng, last, pending)
        state.theta, state.fitted = list(fitted.theta), fitted.n
        augmented = observed.augmented(state, self.options.rho_g)[rows] + penalty(candidates)
        shifts = (observed.multipliers(state) / self.options.rho_g - observed.bounds)[live]
        best = float(augmented.min())
        acquisition = AugmentedImprovement(process, best, self.options.rho_g, shifts)
        order = np.argsort(augmented, kind="stable")
        within = None
        if self.options.theta_solver == "trust_region":
            numbers = [observed.trials[i].number for i in rows]
            within = self._region(candidates[order[:1]], augmented, numbers, state)
        asked = history.asked
        best_first = candidates[order]
        ranked = maximise(
            acquisition,
            search.inputs,
            best_first,
            rng,
            penalty=penalty if mean is None else lambda points: penalty(points) + mean(points),
            within=within,
        )
        for configuration in search.new_configurations(ranked, asked):
            return configuration
        return new_configuration(self.space, asked, rng, path)

    def _older_mean(
        self, path: Path, observed: PathObservations, history: History
    ) -> Penalty | None:
        mean = self.search(path).older_mean(history.older.on(path))
        return None if mean is None else lambda points: observed.scaled(mean(points))

    def _region(
        self, best: Candidates, values: Array, numbers: list[int], state: AdmmState
    ) -> tuple[Array, Array]:
        """Box around the best point: doubled after a success, halved after d failures."""
        d, side, failures = max(best.units.shape[1], 2), _REGION, 0
        for i, number in enumerate(numbers):
            if number < state.started_at or i == 0:
                continue
            if values[i] < values[:i].min():
                side, failures = min(2 * side, 1.0), 0
            else:
                failures += 1
                if failures == d:
                    side, failures = max(side / 2, 0.01), 0
        free = np.array([grid is None for grid in self.search(state.path).inputs.grids])
        units = best.units[0]
        return np.where(free, np.maximum(units - side / 2, 0), 0.0), np.where(
            free, np.minimum(units + side / 2, 1), 1.0
        )

    def _subspace(self, path: Path) -> Space:
        chosen = {s.name: [a] for s, a in zip(self.space.searched, path, strict=True)}
        return self.space.restricted_to(chosen)
