"""Random search: the baseline that every other method must beat (Bergstra and Bengio 2012).

The paper has no algorithm: its trials are independent draws from the prior of each hyperparameter,
a conditional one only where it is active. Here `new_configuration` draws a path evenly among those
that can run, then the values of its algorithms; the answer is the best trial, the history's
incumbent.

Departure: no configuration is asked for twice, so a small space ends in `SpaceExhausted`.
"""

from typing import ClassVar

import numpy as np

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.declarations import RANDOM_SEARCH
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.sampling import new_configuration


class RandomSearch(Optimizer):
    """Draws configurations from the prior, never one that was asked for before.

    In a space with more than a hundred thousand configurations of which almost all were asked for,
    it gives up after a thousand draws in a row that were.
    """

    method: ClassVar[Method] = RANDOM_SEARCH

    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        self._because = Reason("random", "drawn from the whole space")
        return Query(new_configuration(self.space, self.history.asked, rng))
