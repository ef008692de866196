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
"""What a hyperparameter can be set to."""


def from_unit(hyperparameter: Hyperparameter[Any, Any], u: float) -> Value:
    """The value at position `u` in [0, 1]; discrete values share the interval evenly."""
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
    """The position of `value` in [0, 1]; a discrete value stands in the middle of its share."""
    if isinstance(hyperparameter, Constant):
        return 0.5
    if isinstance(hyperparameter, CategoricalHyperparameter):
        return (hyperparameter.choices.index(value) + 0.5) / len(hyperparameter.choices)
    if isinstance(hyperparameter, OrdinalHyperparameter):
        return (hyperparameter.sequence.index(value) + 0.5) / len(hyperparameter.sequence)
    return float(hyperparameter.to_vector(value))


def plain_value(value: Any) -> Value:
    """A Python value in place of numpy's, so that JSON and equality are plain."""
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain
