"""SMAC as a method."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.smac.declaration import SMAC
from prefect_tune.optimizers.methods.smac.forest_search import ForestSearch
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.reason import Reason
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.sampling import sample_configuration

__all__ = ["Smac"]


class Smac(Optimizer):
    """Sequential model-based configuration with a random forest."""

    method: ClassVar[Method] = SMAC

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        if not len(self.history):
            path = sample_configuration(self.space, rng).path
            self._because = Reason("default values", "default values of a random path")
            return Query(default_configuration(self.space, path))
        query, self._because = self._search.propose(self.history, rng)
        return query

    @cached_property
    def _search(self) -> ForestSearch:
        return ForestSearch(self.space, self.objective, self.options)
