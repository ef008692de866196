"""Where ADMM's hyperparameters stand: theta, its projection delta and the multipliers lambda.

All algorithms have their place at all times, chosen or not (Liu, Ram et al. 2020, eq. 9 and 11).
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers.acquisitions.gaussian_search import GaussianSearch
from prefect_tune.optimizers.methods.admm.declaration import AdmmOptions
from prefect_tune.optimizers.methods.admm.splitting import distances, integer_update
from prefect_tune.optimizers.methods.admm.state import AdmmState
from prefect_tune.optimizers.paths.shared_values import SharedValues
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.encoding import Encoding
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import grid_of, to_unit

Array = NDArray[np.floating[Any]]


class Positions:
    """Reads and moves the positions of a state; it keeps none itself.

    Args:
        space: The space; its hyperparameters are the columns of the unit cube.
        options: Weight of the integers' augmented term.
        shared: The values that are chosen with the path; None for none.
    """

    def __init__(
        self, space: Space, options: AdmmOptions, shared: SharedValues | None = None
    ) -> None:
        self.space, self.options = space, options
        self._encoding = Encoding(space)
        self._columns = {column: i for i, column in enumerate(self._encoding.columns)}
        self._of_paths = {self._columns[c] for c in (shared.names if shared else ())}

    def at(
        self, state: AdmmState, path: Path, others: NDArray[np.float64] | None = None
    ) -> Configuration:
        """Return the path with the hyperparameters of now.

        Args:
            state: What was tuned.
            path: The path.
            others: Units of what never was, shape (d,); its default values if left out.
        """
        units = (self._default_units if others is None else others).copy()
        for key, unit in state.units.items():
            units[int(key)] = unit
        return self._encoding.from_cube(path, units)

    @property
    def n_columns(self) -> int:
        """Hyperparameters of all algorithms (d)."""
        return len(self._encoding.columns)

    def move(self, state: AdmmState, chosen: Configuration | None) -> None:
        """Move theta, delta and lambda of all integers, active or not (algorithm 1, eq. 9 and 11).

        Args:
            state: Changed in place.
            chosen: What theta-min found; None if it found nothing.
        """
        active = set[str]()
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
            relaxed, delta, dual = integer_update(grid, self._delta(state, key), dual, index)
            if index is None:
                state.units[key] = float(grid.units[grid.projected(relaxed)])
            state.delta[key] = delta
            state.dual[key] = dual if self.options.rho > 0 else 0.0

    def penalties(self, state: AdmmState, search: GaussianSearch, path: Path) -> dict[int, Array]:
        """Return (rho / 2) (theta(v) - b)^2 of each value, by ordered discrete column."""
        tables = {}
        chosen = {(s.name, a) for s, a in zip(self.space.searched, path, strict=True)}
        for column, name in enumerate(search.candidates.encoding.columns):
            grid = search.inputs.grids[column]
            is_pulled = grid is not None and grid.is_ordered and name[:2] in chosen
            if grid is None or not is_pulled or self.options.rho == 0:
                continue
            key = str(self._columns[name])
            squared = distances(grid, self._delta(state, key), state.dual.get(key, 0.0))
            tables[column] = 0.5 * self.options.rho * squared
        return tables

    def adopt(self, state: AdmmState, configuration: Configuration) -> None:
        """Start algorithms that were never tuned from the values of this configuration.

        The same goes for values that are chosen with the path, tuned or not. Theta and its
        projection delta: integers are pulled to where they were found.
        """
        units, is_active = self._encoding.to_cube(configuration)
        for column in np.flatnonzero(is_active):
            key, grid = str(column), self._grids[column]
            if key in state.units and column not in self._of_paths:
                continue
            state.units[key] = float(units[column])
            if grid is not None and grid.is_ordered:
                state.delta[key] = float(grid.positions[int(grid.index(units[column]))])

    def _delta(self, state: AdmmState, key: str) -> float:
        grid = self._grids[int(key)]
        assert grid is not None  # noqa: S101 - only integers have one
        default = float(grid.positions[int(grid.index(self._default_units[int(key)]))])
        return state.delta.get(key, default)

    @cached_property
    def _grids(self) -> list[Any]:
        return [grid_of(self._encoding.hyperparameter(c)) for c in self._encoding.columns]

    @cached_property
    def _default_units(self) -> NDArray[np.float64]:
        """Defaults on the unit cube; discrete ones on their values."""
        hyperparameters = [self._encoding.hyperparameter(c) for c in self._encoding.columns]
        return np.array([to_unit(h, h.default_value) for h in hyperparameters])
