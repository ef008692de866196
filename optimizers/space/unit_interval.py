"""Values of hyperparameters as positions on the unit interval, and back."""

from typing import Any

import numpy as np
from ConfigSpace.hyperparameters import (
    CategoricalHyperparameter,
    Constant,
    Hyperparameter,
    OrdinalHyperparameter,
)

__all__ = ["Value", "from_unit", "plain_value", "to_unit"]

Value = bool | int | float | str
"""A value of a hyperparameter."""


def from_unit(hyperparameter: Hyperparameter[Any, Any], u: float) -> Value:
    """Return the value at position `u` in [0, 1]; discrete values share the interval evenly."""
    if isinstance(hyperparameter, Constant):
        return plain_value(hyperparameter.value)
    if isinstance(hyperparameter, CategoricalHyperparameter):
        sequence = hyperparameter.choices
    elif isinstance(hyperparameter, OrdinalHyperparameter):
        sequence = hyperparameter.sequence
    else:
        return plain_value(hyperparameter.to_value(min(max(u, 0.0), 1.0)))
    return plain_value(sequence[min(int(u * len(sequence)), len(sequence) - 1)])


def to_unit(hyperparameter: Hyperparameter[Any, Any], value: Value) -> float:
    """Return the position of `value` in [0, 1]; a discrete one's is the middle of its share."""
    if isinstance(hyperparameter, Constant):
        return 0.5
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return (hyperparameter.choices.index(value) + 0.5) / len(hyperparameter.choices)
    if isinstance(hyperparameter, OrdinalHyperparameter):
        return (hyperparameter.sequence.index(value) + 0.5) / len(hyperparameter.sequence)
    return float(hyperparameter.to_vector(value))


def plain_value(value: Any) -> Value:
    """Return a Python value in place of numpy's: JSON and equality are plain then."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
