"""ADMM's theta-min: the next hyperparameters of one path (Liu, Ram et al. 2020, eq. 8).

The Gaussian process models the loss and the constraint values. The penalty of integers is a known
function, so observations from earlier iterations remain usable with the current penalty.
"""

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.methods.admm.splitting import AdmmState, PathObservations, Positions
from prefect_tune.optimizers.methods.declarations import AdmmOptions
from prefect_tune.optimizers.search.improvement import FeasibleImprovement
from prefect_tune.optimizers.search.maximize import (
    Fitted,
    GaussianSearch,
    Penalty,
    maximize,
)
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import Array, Candidates
from prefect_tune.optimizers.trials.earlier import LEAST_FITTED
from prefect_tune.optimizers.trials.history import History


class ThetaMin:
    """Proposes hyperparameters for paths. Calls change only the given state."""

    def __init__(self, space: Space, options: AdmmOptions, positions: Positions) -> None:
        self._space, self._options, self._positions = space, options, positions
        self._searches: dict[Path, GaussianSearch] = {}

    def search(self, path: Path) -> GaussianSearch:
        """Return the search over a path's hyperparameters, built once per path."""
        if path not in self._searches:
            chosen = {s.name: [a] for s, a in zip(self._space.searched, path, strict=True)}
            self._searches[path] = GaussianSearch(
                self._space.restricted_to(chosen), is_coded=self._options.is_paper
            )
        return self._searches[path]

    def penalty(self, state: AdmmState) -> Penalty:
        """Return a function from candidates of the state's path to penalties of their integers."""
        search = self.search(state.path)
        tables = self._positions.penalties(state, search, state.path)

        def penalty(points: Candidates) -> Array:
            total = np.zeros(len(points))
            for column, table in tables.items():
                grid = search.inputs.grids[column]
                assert grid is not None  # noqa: S101 - only columns with a grid have a table
                total += table[grid.index(points.units[:, column])]
            return total

        return penalty

    def propose(
        self, state: AdmmState, observed: PathObservations, history: History, rng: Generator
    ) -> Configuration:
        """Return a new configuration of the path being tuned, or raise SpaceExhausted.

        The paper models the augmented loss as a whole. By default, only the loss and the excesses
        are modeled, and the expected improvement is multiplied by the probability of feasibility.
        """
        path, search, asked = state.path, self.search(state.path), history.asked
        on_path = [t for t in history if t.query.configuration.path == path]
        older = history.older.on(path)
        if len(on_path) + len(older) < LEAST_FITTED or all(t.loss is None for t in on_path):
            return new_configuration(self._space, asked, rng, path)
        rows = [i for i, t in enumerate(observed.trials) if t.query.configuration.path == path]
        is_paper = self._options.is_paper
        losses = observed.augmented(state)[rows] if is_paper else observed.losses[rows]
        is_modeled = observed.excess.any(axis=0) & (not is_paper)
        excess = observed.excess[rows][:, is_modeled]
        pending = [t.query.configuration for t in history.pending]
        pending = [c for c in pending if c.path == path]
        candidates = search.inputs.encode(observed.trials[i].query.configuration for i in rows)
        last = None if state.theta is None else Fitted(tuple(state.theta), state.fitted)
        penalty, mean = self.penalty(state), search.older_mean(older)
        total = losses + penalty(candidates)
        targets = np.column_stack([total if is_paper else losses, excess])
        if mean is not None:
            # The process models the distance from the mean. The penalty adds the mean again.
            targets[:, 0] -= observed.scaled(mean(candidates))

        def added(points: Candidates) -> Array:
            known = np.zeros(len(points)) if is_paper else penalty(points)
            return known if mean is None else known + observed.scaled(mean(points))

        process, fitted = search.learned(candidates, targets, rng, last, pending)
        state.theta, state.fitted = list(fitted.theta), fitted.n
        is_feasible = (excess <= 0).all(axis=1)
        best = float(np.min(total[is_feasible], initial=total.max()))
        best_first = candidates[np.lexsort((total, ~is_feasible))]
        acquisition = FeasibleImprovement(process, best)
        ranked = maximize(acquisition, search.inputs, best_first, rng, penalty=added)
        new = next(search.candidates.new_configurations(ranked, asked), None)
        return new or new_configuration(self._space, asked, rng, path)
