"""Methods whose new configurations are rows of a table.

Random methods take free rows uniformly, bohb draws rows in proportion to its widened density, and
bapi uses all free rows as its pool.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from curve_comparators import Binoculars, Boil
from curve_tables import Table

from prefect_tune.optimizers import (
    Bohb,
    Budget,
    Configuration,
    Halving,
    Hyperband,
    Objective,
    Optimizer,
    Query,
    RandomSearch,
    SpaceExhausted,
)
from prefect_tune.optimizers.methods.bapi.bapi import Bapi
from prefect_tune.optimizers.methods.bohb import N_SAMPLES, RANDOM_SHARE, WIDENING, KernelDensity
from prefect_tune.optimizers.space.vectors import Candidates

__all__ = ["method_of_table"]


class FromTable:
    """Mixin: new configurations are rows of a table."""

    table: Table

    def begin(self: Any, rng: np.random.Generator) -> Configuration:
        """Return a new row, uniformly at random."""
        if not (free := self.free):
            raise SpaceExhausted("all rows were asked for")
        return self.table.configurations[free[int(rng.integers(len(free)))]]

    @property
    def free(self: Any) -> list[int]:
        """Return the rows that have not been proposed yet."""
        asked = self.history.asked
        return [i for i, c in enumerate(self.table.configurations) if c not in asked]


class RandomOfTable(FromTable, RandomSearch):
    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        return Query(self.begin(rng))


class HalvingOfTable(FromTable, Halving):
    pass


class HyperbandOfTable(FromTable, Hyperband):
    pass


class BohbOfTable(FromTable, Bohb):
    @cached_property
    def rows(self) -> Candidates:
        """All rows of the table."""
        (ladder,) = self.ladders.values()
        return ladder.candidates.encode(self.table.configurations)

    def begin(self, rng: np.random.Generator) -> Configuration:
        is_random = rng.random() < RANDOM_SHARE
        proposed = None if is_random else self._by_model(*self.ladders.values(), rng)
        return FromTable.begin(self, rng) if proposed is None else proposed

    def near(self, good: KernelDensity, rng: np.random.Generator) -> Candidates:
        """Draw rows in proportion to the density with wider kernels."""
        rows = self.rows[self.free]
        if not len(rows):
            return rows
        leaving = np.minimum(WIDENING * good.leaving, 1)
        wide = replace(good, widths=WIDENING * good.widths, leaving=leaving)
        density = np.exp(wide.log_density(rows))
        n = min(N_SAMPLES, len(rows))
        return rows[rng.choice(len(rows), n, replace=False, p=density / density.sum())]


class BapiOfTable(FromTable, Bapi):
    @cached_property
    def rows(self) -> Candidates:
        """All rows of the table, encoded as inputs of the model."""
        return self.learner.inputs.encode(self.table.configurations)

    def pool(self, best: Candidates, rng: np.random.Generator) -> Candidates:  # noqa: ARG002
        """Return all rows that have not been proposed yet."""
        return self.rows[self.free]


class BinocularsOfTable(FromTable, Binoculars):
    pass


class BoilOfTable(FromTable, Boil):
    pass


METHODS: dict[str, type[Optimizer]] = {
    "random": RandomOfTable,
    "halving": HalvingOfTable,
    "hyperband": HyperbandOfTable,
    "bohb": BohbOfTable,
    "bapi": BapiOfTable,
    "binoculars": BinocularsOfTable,
    "boil": BoilOfTable,
}


def method_of_table(
    name: str, table: Table, seed: int, objective: Objective, options: Mapping[str, Any]
) -> Optimizer:
    """Return a method that proposes only rows of a table."""
    made: Any = METHODS[name](table.space, seed, objective, **options)
    made.table = table
    optimizer: Optimizer = made
    return optimizer
