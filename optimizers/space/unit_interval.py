"""Values of hyperparameters as positions on the unit interval, and back."""

from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Constant,
    Hyperparameter,
    IntegerHyperparameter,
    OrdinalHyperparameter,
)
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Value",
    "from_unit",
    "integers_at",
    "plain_value",
    "position_on_scale",
    "to_unit",
    "values_of",
]

Value = bool | int | float | str
"""A value of a hyperparameter."""


def from_unit(hyperparameter: Hyperparameter[Any, Any], u: float) -> Value:
    """Return the value at position `u` in [0, 1]; discrete values share the interval evenly.

    Integers in logarithms share it as their rounding cells do on that scale.
    """
    if isinstance(hyperparameter, Constant):
        return plain_value(hyperparameter.value)
    if isinstance(hyperparameter, CategoricalHyperparameter):
        sequence = hyperparameter.choices
    elif isinstance(hyperparameter, OrdinalHyperparameter):
        sequence = hyperparameter.sequence
    elif isinstance(hyperparameter, IntegerHyperparameter):
        return int(integers_at(hyperparameter, u))
    else:
        return plain_value(hyperparameter.to_value(min(max(u, 0.0), 1.0)))
    return plain_value(sequence[min(int(u * len(sequence)), len(sequence) - 1)])


def to_unit(hyperparameter: Hyperparameter[Any, Any], value: Value) -> float:
    """Return the position of `value` in [0, 1]; a discrete one's is in the middle of its share."""
    if isinstance(hyperparameter, Constant):
        return 0.5
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return (hyperparameter.choices.index(value) + 0.5) / len(hyperparameter.choices)
    if isinstance(hyperparameter, OrdinalHyperparameter):
        return (hyperparameter.sequence.index(value) + 0.5) / len(hyperparameter.sequence)
    if isinstance(hyperparameter, IntegerHyperparameter):
        return float(position_on_scale(hyperparameter, value))
    return float(hyperparameter.to_vector(value))


def integers_at(hyperparameter: IntegerHyperparameter, units: ArrayLike) -> NDArray[np.int64]:
    """Return the integers at positions in [0, 1], of any shape.

    The interval is the range with half a step more at both ends, or the first and the last value
    would have half the share of the others.
    """
    lower, upper = _ends(hyperparameter)
    scaled = lower + np.asarray(units, dtype=np.float64) * (upper - lower)
    rounded = np.floor((np.exp(scaled) if hyperparameter.log else scaled) + 0.5)
    integers: NDArray[np.int64] = np.clip(
        rounded, hyperparameter.lower, hyperparameter.upper
    ).astype(np.int64)
    return integers


def position_on_scale(hyperparameter: IntegerHyperparameter, numbers: Any) -> NDArray[np.float64]:
    """Return positions in [0, 1] of numbers of the range of an integer, whole or not."""
    lower, upper = _ends(hyperparameter)
    numbers = np.asarray(numbers, dtype=np.float64)
    scaled = np.log(numbers) if hyperparameter.log else numbers
    position: NDArray[np.float64] = (scaled - lower) / (upper - lower)
    return position


def values_of(hyperparameter: Hyperparameter[Any, Any]) -> list[Value]:
    """Return all values of a discrete hyperparameter, in order."""
    if isinstance(hyperparameter, IntegerHyperparameter):
        return list(range(hyperparameter.lower, hyperparameter.upper + 1))
    size = int(hyperparameter.size)
    return [from_unit(hyperparameter, (i + 0.5) / size) for i in range(size)]


def _ends(hyperparameter: IntegerHyperparameter) -> tuple[float, float]:
    """Return the ends of the range half a step further, on its scale."""
    lower, upper = hyperparameter.lower - 0.5, hyperparameter.upper + 0.5
    return (float(np.log(lower)), float(np.log(upper))) if hyperparameter.log else (lower, upper)


def plain_value(value: Any) -> Value:
    """Return a Python value in place of numpy's: JSON and equality are plain then."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
