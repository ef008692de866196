"""Configurations drawn from the prior, uniform over paths and then over each range, or all of them.

If algorithms ignore steps, algorithms of each step are drawn uniformly first. If paths were, a
model that ignores many steps would be rare, because it has few paths.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import islice, product

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import (
    Choice,
    Configuration,
    active_hyperparameters,
    are_allowed,
)
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.unit_interval import Value, from_unit, values_of


def enumerate_configurations(
    space: Space, limit: int, path: Path | None = None
) -> list[Configuration] | None:
    """Return all configurations of a finite space, or of one path; None if more than `limit`."""
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


MOST_PATHS = 20_000
"""Largest number of paths to list; of more, methods search a fixed sample."""


def listed_paths(space: Space, seed: int) -> list[Path]:
    """Return all runnable paths, or a sorted random sample if they are too many."""
    paths = list(islice(space.paths(), MOST_PATHS + 1))
    if len(paths) <= MOST_PATHS:
        return paths
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0)))
    return sorted({sample_configuration(space, rng).path for _ in range(MOST_PATHS)})


_MOST_DRAWS = 10_000
"""Number of draws after which a space is rejected as too constrained."""
_NEW_DRAWS = 1_000
"""Number of draws without a new configuration after which the space is listed."""
_LIST_LIMIT = 100_000
"""Largest space that is listed to find new configurations."""


class SpaceExhausted(Exception):  # noqa: N818 - not an error: the search has seen everything
    """Every configuration of the space has been proposed."""


def sample_configuration(space: Space, rng: Generator, path: Path | None = None) -> Configuration:
    """Return a draw from the prior; `ValueError` if ten thousand draws violate constraints."""
    if path is None:
        path = _sample_path(space, rng)
    return Configuration.of(space, path, [_sample_values(a, rng) for a in space.algorithms(path)])


def sample_choice(algorithm: Algorithm, rng: Generator) -> Choice:
    """Return an algorithm with values drawn from the prior; `ValueError` if too constrained."""
    return Choice.of(algorithm.id, _sample_values(algorithm, rng))


def new_configuration(
    space: Space, asked: AbstractSet[Configuration], rng: Generator, path: Path | None = None
) -> Configuration:
    """Return a configuration drawn from the prior that is not among those `asked`.

    A given `path` is kept. `SpaceExhausted` is raised if no configuration is new, or after a
    thousand known draws in a row in a space too large to list.
    """
    for _ in range(_NEW_DRAWS):
        configuration = sample_configuration(space, rng, path)
        if configuration not in asked:
            return configuration
        if path is not None and not any(choice.values for _, choice in configuration.choices):
            break  # a path without hyperparameters is one configuration
    listed = enumerate_configurations(space, _LIST_LIMIT, path)
    rest = [c for c in listed or () if c not in asked]
    if not rest:
        raise SpaceExhausted(
            f"all configurations of space {space.name!r} that a thousand draws can find "
            f"({len(asked)}) have been asked for"
        )
    return rest[int(rng.integers(len(rest)))]


def _sample_path(space: Space, rng: Generator) -> Path:
    for _ in range(_MOST_DRAWS):
        drawn = (s.algorithms[int(rng.integers(len(s.algorithms)))].id for s in space.searched)
        path = space.settled(tuple(drawn))
        if space.is_feasible(path):
            return path
    raise ValueError(
        f"no path of space {space.name!r} that can run was found in {_MOST_DRAWS} draws"
    )


def _sample_values(algorithm: Algorithm, rng: Generator) -> dict[str, Value]:
    for _ in range(_MOST_DRAWS):
        values: dict[str, Value] = {}
        for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
            values[hyperparameter.name] = from_unit(hyperparameter, float(rng.random()))
        if are_allowed(algorithm, values):
            return values
    raise ValueError(
        f"no values of algorithm {algorithm.id!r} outside its forbidden clauses were found "
        f"in {_MOST_DRAWS} draws"
    )
