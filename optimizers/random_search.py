"""Random search: the baseline that every other method must beat (Bergstra and Bengio 2012)."""

from typing import ClassVar

import numpy as np

from prefect_tune.optimizers.configuration import (
    Configuration,
    Query,
    enumerate_configurations,
    sample_configuration,
)
from prefect_tune.optimizers.optimizer import Budget, Optimizer, SpaceExhausted

__all__ = ["RandomSearch"]

_DRAWS = 1_000
"""Draws without a new configuration before the rest of the space is listed."""
_LIST_LIMIT = 100_000
"""Largest space that is listed to find what is left of it."""


class RandomSearch(Optimizer):
    """Draws configurations from the prior, never one that was asked for before.

    In a space with more than a hundred thousand configurations of which almost all were asked for,
    it gives up after a thousand draws in a row that were.
    """

    name: ClassVar[str] = "random"

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        asked = {trial.query.configuration for trial in self.history}
        for _ in range(_DRAWS):
            configuration = sample_configuration(self.space, rng)
            if configuration not in asked:
                return Query(configuration)
        return Query(self._draw_from_the_rest(asked, rng))

    def _draw_from_the_rest(
        self, asked: set[Configuration], rng: np.random.Generator
    ) -> Configuration:
        listed = enumerate_configurations(self.space, _LIST_LIMIT)
        rest = [c for c in listed or () if c not in asked]
        if not rest:
            raise SpaceExhausted(
                f"all configurations of space {self.space.name!r} that random search can find "
                f"({len(asked)}) have been asked for"
            )
        return rest[int(rng.integers(len(rest)))]
