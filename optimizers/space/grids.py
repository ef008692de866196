"""Discrete hyperparameters as points on the unit interval: projection, cells and nearest points.

The rounding cell of a point reaches halfway to its neighbours; a position on a border belongs to
the upper cell (round half up).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Hyperparameter,
    IntegerHyperparameter,
    OrdinalHyperparameter,
)
from numpy.typing import ArrayLike, NDArray

from prefect_tune.optimizers.space.unit_interval import position_on_scale

__all__ = ["Grid", "grid_of"]

Array = NDArray[np.floating[Any]]
_ROUNDING = 1e-12
"""A position is on a border when it is this near."""
_INSIDE = 1e-9
"""Cells end so far before their borders, which belong to the cell above."""
_MOST_VALUES = 10_000
"""An integer of more values than this is as good as continuous."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of one discrete hyperparameter.

    Attributes:
        units: Where `to_unit` puts each value, rising, shape (L,).
        borders: Between them, from which on `from_unit` gives the next value, shape (L - 1,).
        positions: The values on [0, 1], 0 the first and 1 the last, shape (L,).
        is_ordered: Whether neighbours are alike; false for three categories and more.
    """

    units: Array
    borders: Array
    positions: Array
    is_ordered: bool = True

    def index(self, units: ArrayLike) -> NDArray[np.intp]:
        """Return which value each unit stands for."""
        return np.searchsorted(self.borders, np.asarray(units), side="right")

    def projected(self, position: float) -> int:
        """Return the value nearest to a position, half way up."""
        borders = (self.positions[1:] + self.positions[:-1]) / 2
        inside = np.clip(position, 0.0, 1.0) + _ROUNDING
        return int(np.searchsorted(borders, inside, side="right"))

    def nearest_in_cells(self, target: float) -> Array:
        """Return the point of each value's cell nearest to the target, shape (L,).

        Each is projected back to its value: the cell is shrunk to its inside.
        """
        borders = (self.positions[1:] + self.positions[:-1]) / 2
        lower = np.concatenate([[0.0], borders + _INSIDE])
        upper = np.concatenate([borders - _INSIDE, [1.0]])
        nearest: Array = np.clip(target, lower, upper)
        return nearest


def grid_of(hyperparameter: Hyperparameter[Any, Any]) -> Grid | None:
    """Return its grid; None when it is continuous, or has too many values to list."""
    if isinstance(hyperparameter, IntegerHyperparameter):
        if hyperparameter.upper - hyperparameter.lower >= _MOST_VALUES:
            return None
        values = np.arange(hyperparameter.lower, hyperparameter.upper + 1)
        units = position_on_scale(hyperparameter, values)
        borders = position_on_scale(hyperparameter, values[:-1] + 0.5)
        return Grid(units, borders, np.asarray(hyperparameter.to_vector(values), dtype=np.float64))
    if isinstance(hyperparameter, CategoricalHyperparameter):
        n, is_ordered = len(hyperparameter.choices), len(hyperparameter.choices) < 3
    elif isinstance(hyperparameter, OrdinalHyperparameter):
        n, is_ordered = len(hyperparameter.sequence), True
    else:
        return None
    positions = np.arange(n) / max(n - 1, 1)
    return Grid((np.arange(n) + 0.5) / n, np.arange(1, n) / n, positions, is_ordered)
