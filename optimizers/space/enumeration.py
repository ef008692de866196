"""All configurations of a small finite space."""

from collections.abc import Mapping
from itertools import product

import numpy as np

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.conditions import active_hyperparameters, are_allowed
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Value, values_of

__all__ = ["enumerate_configurations"]


def enumerate_configurations(
    space: Space, limit: int, path: Path | None = None
) -> list[Configuration] | None:
    """Return all configurations of a finite space; None if there are more than `limit`.

    Args:
        space: The space.
        limit: How many to list at most.
        path: List those of this path only.
    """
    found: list[Configuration] = []
    for listed in space.paths() if path is None else (path,):
        grids = [_grid(algorithm, limit) for algorithm in space.algorithms(listed)]
        known = [grid for grid in grids if grid is not None]
        if len(known) < len(grids):
            return None
        for values in product(*known):
            found.append(Configuration.of(space, listed, values))
            if len(found) > limit:
                return None
    return found


def _grid(algorithm: Algorithm, limit: int) -> list[dict[str, Value]] | None:
    """Return all assignments; None if one is continuous or they are more than `limit`."""
    grid: list[dict[str, Value]] = [{}]
    for hyperparameter in algorithm.hyperparameters.values():
        size = hyperparameter.size
        if not np.isfinite(size) or size * len(grid) > limit:
            return None
        options = values_of(hyperparameter)
        grid = [
            {**values, hyperparameter.name: option} if is_active else values
            for values in grid
            for is_active in [_is_active(algorithm, hyperparameter.name, values)]
            for option in (options if is_active else options[:1])
        ]
    return [values for values in grid if are_allowed(algorithm, values)]


def _is_active(algorithm: Algorithm, name: str, values: Mapping[str, Value]) -> bool:
    return any(h.name == name for h in active_hyperparameters(algorithm.hyperparameters, values))
