"""Drawing and listing configurations.

The prior is uniform over the algorithms of each step, and over the range of each hyperparameter.
Draws with paths that cannot run are repeated.
"""

from collections.abc import Set as AbstractSet
from itertools import islice, product

import numpy as np
from ConfigSpace.hyperparameters import IntegerHyperparameter
from numpy.random import Generator

from prefect_tune.optimizers.documents import choices_of, plain_value
from prefect_tune.optimizers.space.algorithm import Algorithm
from prefect_tune.optimizers.space.configuration import (
    Choice,
    Configuration,
    Value,
    active_hyperparameters,
    are_allowed,
)
from prefect_tune.optimizers.space.space import Path, Space
from prefect_tune.optimizers.space.vectors import MOST_LISTED, from_unit


def enumerate_configurations(
    space: Space, limit: int, path: Path | None = None
) -> list[Configuration] | None:
    """Return all configurations of a space or of one path; None if there are more than `limit`."""
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
    hyperparameters = algorithm.hyperparameters
    grid: list[dict[str, Value]] = [{}]
    for h in hyperparameters.values():
        if not np.isfinite(h.size) or h.size * len(grid) > limit:
            return None
        options = [*map(plain_value, choices_of(h) or ())]
        if isinstance(h, IntegerHyperparameter):
            options = [*range(h.lower, h.upper + 1)]
        longer = []
        for values in grid:
            active = [other.name for other in active_hyperparameters(hyperparameters, values)]
            is_active = h.name in active
            longer += [{**values, h.name: o} for o in options] if is_active else [values]
        grid = longer
    return [values for values in grid if are_allowed(algorithm, values)]


def listed_paths(space: Space, seed: int) -> list[Path]:
    """Return all runnable paths, or a sorted random sample if the space has too many to list."""
    paths = list(islice(space.paths(), MOST_LISTED + 1))
    if len(paths) <= MOST_LISTED:
        return paths
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0)))
    return sorted({sample_configuration(space, rng).path for _ in range(MOST_LISTED)})


ATTEMPTS = 20
"""Number of attempts to find something new near known configurations."""
_MOST_DRAWS = 1_000
"""Number of failed draws after which a space is listed, or rejected as too constrained."""


class SpaceExhausted(Exception):  # noqa: N818 - not an error: the search is complete
    """The space has no configuration left to propose."""


def sample_configuration(space: Space, rng: Generator, path: Path | None = None) -> Configuration:
    """Return a configuration drawn from the prior; the path may be given.

    Raises ValueError if a thousand draws in a row are invalid.
    """
    chosen = zip(space.searched, space.algorithms(path or _sample_path(space, rng)), strict=True)
    return Configuration(tuple((step.name, sample_choice(a, rng)) for step, a in chosen))


def sample_choice(algorithm: Algorithm, rng: Generator) -> Choice:
    """Return an algorithm with values drawn from the prior.

    Raises ValueError if a thousand draws in a row are forbidden.
    """
    for _ in range(_MOST_DRAWS):
        values: dict[str, Value] = {}
        for hyperparameter in active_hyperparameters(algorithm.hyperparameters, values):
            values[hyperparameter.name] = from_unit(hyperparameter, float(rng.random()))
        if are_allowed(algorithm, values):
            return Choice.of(algorithm.id, values)
    raise ValueError(f"{_MOST_DRAWS} draws of algorithm {algorithm.id!r} found no allowed values")


def new_configuration(
    space: Space, asked: AbstractSet[Configuration], rng: Generator, path: Path | None = None
) -> Configuration:
    """Return a random configuration that is not in `asked`; the path may be given.

    The configuration is drawn from the prior. Raises SpaceExhausted if no configuration is new or,
    in a space too large to list, if a thousand draws in a row are not new.
    """
    for _ in range(_MOST_DRAWS):
        configuration = sample_configuration(space, rng, path)
        if configuration not in asked:
            return configuration
    listed = enumerate_configurations(space, MOST_LISTED, path)
    rest = [c for c in listed or () if c not in asked]
    if not rest:
        found = "a thousand draws gave" if listed is None else "the space has"
        raise SpaceExhausted(f"{found} no new configuration after {len(asked)} proposals")
    return rest[int(rng.integers(len(rest)))]


def _sample_path(space: Space, rng: Generator) -> Path:
    for _ in range(_MOST_DRAWS):
        drawn = (s.algorithms[int(rng.integers(len(s.algorithms)))].id for s in space.searched)
        path = space.canonical_path(tuple(drawn))
        if space.is_feasible(path):
            return path
    raise ValueError(f"{_MOST_DRAWS} draws from space {space.name!r} found no path that can run")
