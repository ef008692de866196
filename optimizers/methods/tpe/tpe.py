"""Tree-structured Parzen estimators as a method."""

from functools import cached_property
from typing import ClassVar

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method
from prefect_tune.optimizers.methods.tpe.declaration import TPE
from prefect_tune.optimizers.methods.tpe.parzen_search import ParzenSearch
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.query import Query

__all__ = ["Tpe"]


class Tpe(Optimizer):
    """Optuna's TPE over a space of conditional hyperparameters."""

    method: ClassVar[Method] = TPE

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        query, self._because = self._search.propose(self.history, rng)
        return query

    @cached_property
    def _search(self) -> ParzenSearch:
        return ParzenSearch(self.space, self.objective, self.options)
