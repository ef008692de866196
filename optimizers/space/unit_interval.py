"""Values of hyperparameters as positions on the unit interval, and back.

Discrete values are points of a grid. The rounding cell of a point reaches halfway to its
neighbours; a position on a border belongs to the upper cell (round half up).
"""

from collections.abc import Sequence
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

from prefect_tune.optimizers.converter import choices_of, plain_value, value_document

Array = NDArray[np.floating[Any]]
Value = Any
"""A value of a hyperparameter: a number or text, or a choice as in `value_documents`."""


def from_unit(hyperparameter: Hyperparameter[Any, Any], u: float) -> Value:
    """Return the value at position `u` in [0, 1]; discrete values have equal shares."""
    if (choices := choices_of(hyperparameter)) is not None:
        return plain_value(choices[min(int(u * len(choices)), len(choices) - 1)])
    if isinstance(hyperparameter, IntegerHyperparameter):
        return int(integers_at(hyperparameter, u))
    return plain_value(hyperparameter.to_value(min(max(u, 0.0), 1.0)))


def to_unit(hyperparameter: Hyperparameter[Any, Any], value: Value) -> float:
    """Return the position of `value` in [0, 1]; a discrete value is in the middle of its share."""
    if (choices := choices_of(hyperparameter)) is not None:
        return (_position(choices, value) + 0.5) / len(choices)
    if isinstance(hyperparameter, IntegerHyperparameter):
        return float(position_on_scale(hyperparameter, value))
    return float(hyperparameter.to_vector(value))


def _position(choices: Sequence[Any], value: Value) -> int:
    try:
        return choices.index(value)
    except ValueError:  # an equal object of another process, or a value that is not equal to itself
        return [*map(value_document, choices)].index(value_document(value))


def integers_at(hyperparameter: IntegerHyperparameter, units: ArrayLike) -> NDArray[np.int64]:
    """Return the integers at positions in [0, 1], of any shape.

    The interval is the range plus half a step at both ends, so that the first and the last value
    have the same share as the others.
    """
    lower, upper = _ends(hyperparameter)
    scaled = lower + np.asarray(units, dtype=np.float64) * (upper - lower)
    rounded = np.floor((np.exp(scaled) if hyperparameter.log else scaled) + 0.5)
    return np.clip(rounded, hyperparameter.lower, hyperparameter.upper).astype(np.int64)


def position_on_scale(hyperparameter: IntegerHyperparameter, numbers: Any) -> Array:
    """Return positions in [0, 1] of numbers within an integer's range, whole or not."""
    lower, upper = _ends(hyperparameter)
    numbers = np.asarray(numbers, dtype=np.float64)
    return ((np.log(numbers) if hyperparameter.log else numbers) - lower) / (upper - lower)


def values_of(hyperparameter: Hyperparameter[Any, Any]) -> list[Value]:
    """Return all values of a discrete hyperparameter, in order."""
    if isinstance(hyperparameter, IntegerHyperparameter):
        return list(range(hyperparameter.lower, hyperparameter.upper + 1))
    size = int(hyperparameter.size)
    return [from_unit(hyperparameter, (i + 0.5) / size) for i in range(size)]


def _ends(hyperparameter: IntegerHyperparameter) -> tuple[float, float]:
    lower, upper = hyperparameter.lower - 0.5, hyperparameter.upper + 0.5
    return (float(np.log(lower)), float(np.log(upper))) if hyperparameter.log else (lower, upper)


_ROUNDING = 1e-12
"""Distance within which a position is on a border."""
_INSIDE = 1e-9
"""Distance of cells from their upper borders, which belong to the next cell."""
_MOST_VALUES = 10_000
"""Values of an integer above which it counts as continuous."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The values of one discrete hyperparameter.

    Attributes:
        units: Position of each value by `to_unit`, rising, shape (L,).
        borders: Positions from which `from_unit` gives the next value, shape (L - 1,).
        positions: Values on [0, 1], from first to last, shape (L,).
        is_ordered: Whether neighbours are similar; false for three or more categories.
    """

    units: Array
    borders: Array
    positions: Array
    is_ordered: bool = True

    def index(self, units: ArrayLike) -> NDArray[np.intp]:
        """Return the index of each unit's value."""
        return np.searchsorted(self.borders, np.asarray(units), side="right")

    def projected(self, position: float) -> int:
        """Return the index of the value nearest to a position, rounding half up."""
        borders = (self.positions[1:] + self.positions[:-1]) / 2
        inside = np.clip(position, 0.0, 1.0) + _ROUNDING
        return int(np.searchsorted(borders, inside, side="right"))

    def nearest_in_cells(self, target: float) -> Array:
        """Return the point of each value's cell that is nearest to the target, shape (L,)."""
        borders = (self.positions[1:] + self.positions[:-1]) / 2
        lower = np.concatenate([[0.0], borders + _INSIDE])
        upper = np.concatenate([borders - _INSIDE, [1.0]])
        return np.clip(target, lower, upper)


def grid_of(hyperparameter: Hyperparameter[Any, Any]) -> Grid | None:
    """Return the grid of a hyperparameter; None if continuous, or with too many values to list."""
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
