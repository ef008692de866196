"""References of other methods: random search, and JOPT, the joint optimiser of whole pipelines.

Random search is the baseline that every other method must beat (Bergstra and Bengio 2012). Its
trials are independent draws from the prior of each hyperparameter, a conditional one only where it
is active. Here `new_configuration` draws a path evenly among those that can run, then the values of
its algorithms; the answer is the best trial, the history's incumbent. Departure: no configuration
is asked for twice, so a small space ends in `SpaceExhausted`.

JOPT is what ADMM is compared with (Liu, Ram et al. 2020, section 5), problem (1) of the paper
without splitting:

    z one-hot, theta of all algorithms          PipelineInputs, behind GaussianSearch.inputs
    a Gaussian process of f(z, theta)           GaussianSearch.learned
    expected improvement                        AugmentedImprovement, without an added term
    its maximiser, integers rounded             GaussianSearch.ranked

Departures: configurations that differ only in what is inactive are one; `kernel=conditional`
compares only what two pipelines share; the improvement is in logarithms; pending queries are
imagined to give their mean.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.acquisitions.expected_improvement import AugmentedImprovement
from prefect_tune.optimizers.acquisitions.gaussian_search import Fitted, GaussianSearch, maximise
from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.declarations import JOPT, RANDOM_SEARCH
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Configuration, Query
from prefect_tune.optimizers.space.sampling import new_configuration
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.trials.losses import told_losses
from prefect_tune.optimizers.trials.trial import Trial


class RandomSearch(Optimizer):
    """Draws configurations from the prior, never one that was asked for before.

    In a space with more than a hundred thousand configurations of which almost all were asked for,
    it gives up after a thousand draws in a row that were.
    """

    method: ClassVar[Method] = RANDOM_SEARCH

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        self._because = Reason("random", "drawn from the whole space")
        return Query(new_configuration(self.space, self.history.asked, rng))


_START = Reason("random start", "too few results for a Gaussian process")
_NOTHING_ELSE = Reason("random", "all that the Gaussian process proposes was asked for")


class Jopt(Optimizer):
    """One Gaussian process over the whole conditional space, and expected improvement."""

    method: ClassVar[Method] = JOPT

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        return Query(self._next(rng))

    def _next(self, rng: Generator) -> Configuration:
        asked = self.history.asked
        n_told = len(self.history.complete) + len(self.history.failed)
        if n_told < self.options.n_startup or not self.history.complete:
            self._because = _START
            return new_configuration(self.space, asked, rng)
        trials, losses = told_losses(self.history, self.objective, self.options.failure_cost)
        search = self._search
        observed = search.inputs.encode(t.query.configuration for t in trials)
        targets, number = self._targets(trials, losses)
        memo: Mapping[str, Any] = self.memo or {}
        pending = [t.query.configuration for t in self.history.pending]
        last = Fitted(tuple(memo["theta"]), memo.get("fitted", 0)) if "theta" in memo else None
        process, fitted = search.learned(observed, targets, rng, last, pending)
        self.memo = {"theta": list(fitted.theta), "fitted": fitted.n}
        mine = targets[:, number]
        acquisition = AugmentedImprovement(process.of_target(number), float(mine.min()))
        best_first = observed[np.argsort(mine, kind="stable")]
        ranked = maximise(acquisition, search.inputs, best_first, rng)
        for configuration in search.new_configurations(ranked, asked):
            self._because = Reason("expected improvement", self._said(number))
            return configuration
        self._because = _NOTHING_ELSE
        return new_configuration(self.space, asked, rng)

    def _said(self, number: int) -> str:  # noqa: ARG002
        """Return why for a configuration that is to improve on the target of that number."""
        return "largest expected improvement by a Gaussian process"

    def _targets(self, trials: Sequence[Trial], losses: Array) -> tuple[Array, int]:  # noqa: ARG002
        """Return what is learned of trials, shape (n, t), and which target is to be improved."""
        return losses[:, None], 0

    @cached_property
    def _search(self) -> GaussianSearch:
        return GaussianSearch(self.space, self.options.kernel)
