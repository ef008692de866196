"""Which hyperparameters of an algorithm are active, and which values it allows together."""

from collections.abc import Iterator, Mapping
from typing import Any

from ConfigSpace import Configuration as Assignment
from ConfigSpace import ConfigurationSpace
from ConfigSpace.exceptions import ForbiddenValueError
from ConfigSpace.hyperparameters import Hyperparameter

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.unit_interval import Value

__all__ = ["active_hyperparameters", "are_allowed"]


def active_hyperparameters(
    hyperparameters: ConfigurationSpace, values: Mapping[str, Value]
) -> Iterator[Hyperparameter[Any, Any]]:
    """Yield those whose conditions hold, parents first; `values` may grow meanwhile."""
    for hyperparameter in hyperparameters.values():
        conditions = hyperparameters.parent_conditions_of[hyperparameter.name]
        parents = hyperparameters.parents_of[hyperparameter.name]
        if all(parent.name in values for parent in parents) and all(
            condition.satisfied_by_value(dict(values)) for condition in conditions
        ):
            yield hyperparameter


def are_allowed(algorithm: Algorithm, values: Mapping[str, Value]) -> bool:
    """Return whether no forbidden clause of the algorithm rules these values out together."""
    if not algorithm.hyperparameters.forbidden_clauses:
        return True
    try:
        Assignment(algorithm.hyperparameters, values=dict(values))
    except ForbiddenValueError:
        return False
    return True
