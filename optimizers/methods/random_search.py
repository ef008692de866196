"""Random search: the baseline that every other method must beat (Bergstra and Bengio 2012)."""

from collections.abc import Set as AbstractSet
from typing import ClassVar

import numpy as np

from prefect_tune.optimizers.optimizer import Budget, Optimizer, SpaceExhausted
from prefect_tune.optimizers.space.configuration import (
    Configuration,
    Query,
    enumerate_configurations,
    sample_configuration,
)
from prefect_tune.optimizers.space.space import Path, Space

__all__ = ["RandomSearch", "new_configuration"]

_DRAWS = 1_000
"""Draws without a new configuration before the rest of the space is listed."""
_LIST_LIMIT = 100_000
"""Largest space that is listed to find what is left of it."""


def new_configuration(
    space: Space,
    asked: AbstractSet[Configuration],
    rng: np.random.Generator,
    path: Path | None = None,
) -> Configuration:
    """A configuration drawn from the prior that was not asked for before.

    Args:
        space: Where to draw from.
        asked: What not to draw.
        rng: Source of randomness.
        path: Draw hyperparameters for this path only.

    Raises:
        SpaceExhausted: If there is none, or a thousand draws in a row were asked for before in a
            space that is too large to list.
    """
    for _ in range(_DRAWS):
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


class RandomSearch(Optimizer):
    """Draws configurations from the prior, never one that was asked for before.

    In a space with more than a hundred thousand configurations of which almost all were asked for,
    it gives up after a thousand draws in a row that were.
    """

    name: ClassVar[str] = "random"

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        asked = {trial.query.configuration for trial in self.history}
        return Query(new_configuration(self.space, asked, rng))
