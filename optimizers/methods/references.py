"""Reference methods: random search, JOPT (the joint optimization of whole pipelines), and stepwise.

Random search is the baseline that every other method must beat (Bergstra and Bengio 2012). Each
trial is an independent draw (`new_configuration`): the path is uniform over the runnable paths, and
each active hyperparameter follows its prior. Departure: no configuration is proposed twice, so the
search of a small space ends with `SpaceExhausted`.

JOPT is the reference for ADMM (Liu, Ram et al. 2020, section 5): problem (1) without splitting. A
Gaussian process models f(z, theta), where z is one-hot and theta contains the hyperparameters of
all algorithms (`PipelineInputs`). Expected improvement (`FeasibleImprovement`) is maximized with
rounded integers (`GaussianSearch`). Departures: configurations that differ only in inactive parts
count as equal, the log expected improvement is used, pending queries are assumed to return their
predicted means, and the improvement is multiplied by the probability of meeting the constraints.

The stepwise search is the reference for FLASH. It chooses one algorithm after the other (Mohr and
Wever 2022, "Naive automated machine learning", Machine Learning 112).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.method import Method, Reason
from prefect_tune.optimizers.methods.declarations import JOPT, RANDOM_SEARCH, STEPWISE
from prefect_tune.optimizers.methods.smac import ForestSearch, ForestSettings
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.search.improvement import FeasibleImprovement
from prefect_tune.optimizers.search.maximize import Fitted, GaussianSearch, maximize
from prefect_tune.optimizers.space.configuration import (
    Configuration,
    Query,
    default_configuration,
)
from prefect_tune.optimizers.space.sampling import SpaceExhausted, new_configuration
from prefect_tune.optimizers.space.vectors import Array
from prefect_tune.optimizers.trials.history import imputed_losses, worst_excess
from prefect_tune.optimizers.trials.trial import Trial


class RandomSearch(Optimizer):
    """Random search: draws new configurations from the prior.

    If the space is too large to list, the search ends after a thousand consecutive draws of known
    configurations.
    """

    method: ClassVar[Method] = RANDOM_SEARCH

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        self._because = Reason("random", "drawn from the whole space")
        return Query(new_configuration(self.space, self.history.asked, rng))


_START = Reason("random start", "too few results for a Gaussian process")
_NOTHING_ELSE = Reason("random", "all candidates of the Gaussian process were evaluated before")


class Jopt(Optimizer):
    """Expected improvement with one Gaussian process over the whole conditional space."""

    method: ClassVar[Method] = JOPT

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        return Query(self._next(rng))

    def _next(self, rng: Generator) -> Configuration:
        asked = self.history.asked
        older = self.history.older
        n_told = len(self.history.complete) + len(self.history.failed) + len(older)
        if n_told < self.options.n_startup or not self.history.complete:
            self._because = _START
            return new_configuration(self.space, asked, rng)
        trials, losses = imputed_losses(self.history, self.objective, "worst")
        search = self._search
        observed = search.inputs.encode(t.query.configuration for t in trials)
        targets, number = self._targets(trials, losses)
        targets = targets - targets.min(axis=0)
        memo: Mapping[str, Any] = self.memo or {}
        pending = [t.query.configuration for t in self.history.pending]
        last = Fitted(tuple(memo["theta"]), memo.get("fitted", 0)) if "theta" in memo else None
        mean = search.older_mean(older)
        # The process models the distance from the mean. The penalty adds the mean again.
        distances = targets if mean is None else targets - mean(observed)[:, None]
        mine, numbers = targets[:, number], [number]
        excess = worst_excess(self.history, trials)
        if self.history.constraints:
            distances = np.column_stack([distances, excess])
            numbers.append(targets.shape[1])
        process, fitted = search.learned(observed, distances, rng, last, pending)
        self.memo = {"theta": list(fitted.theta), "fitted": fitted.n}
        best = float(np.min(mine[excess <= 0], initial=mine.max()))
        acquisition = FeasibleImprovement(process.of_targets(numbers), best)
        best_first = observed[np.argsort(mine, kind="stable")]
        ranked = maximize(acquisition, search.inputs, best_first, rng, penalty=mean)
        for configuration in search.candidates.new_configurations(ranked, asked):
            self._because = Reason("expected improvement", self._why())
            return configuration
        self._because = _NOTHING_ELSE
        return new_configuration(self.space, asked, rng)

    def _why(self) -> str:
        """Return the reason for a configuration chosen to improve the next target."""
        return "largest expected improvement under a Gaussian process"

    def _targets(self, trials: Sequence[Trial], losses: Array) -> tuple[Array, int]:  # noqa: ARG002
        """Return the targets of trials, shape (n, t), and the number of the target to improve."""
        return losses[:, None], 0

    @cached_property
    def _search(self) -> GaussianSearch:
        return GaussianSearch(self.space)


_STEP = Reason("step", "another algorithm for one step of the best pipeline so far")


class Stepwise(Optimizer):
    """Chooses the model, then the algorithm of each other step, then hyperparameters.

    A choice compares default values. The first pipeline is the first path of the space. A random
    forest (`ForestSearch`) tunes the hyperparameters of the chosen pipeline, and then of all
    pipelines.
    """

    method: ClassVar[Method] = STEPWISE

    def _propose(self, budget: Budget, rng: Generator) -> Query:  # noqa: ARG002
        losses = {t.query.configuration: t.loss for t in self.history if t.loss is not None}
        asked, steps = self.history.asked, self.space.searched
        path = next(self.space.paths())
        for k in (len(steps) - 1, *range(len(steps) - 1)):
            paths = [
                self.space.canonical_path((*path[:k], a.id, *path[k + 1 :]))
                for a in steps[k].algorithms
            ]
            paths = [p for p in dict.fromkeys(paths) if self.space.is_feasible(p)]
            choices = {default_configuration(self.space, p): p for p in paths}
            for configuration in choices:
                if configuration not in asked:
                    self._because = _STEP
                    return Query(configuration)
            best = min(choices, key=lambda c: losses.get(c, inf), default=None)
            path = path if best is None else choices[best]
        kept = {s.name: [a] for s, a in zip(steps, path, strict=True)}
        settings = ForestSettings(n_startup=self.options.n_startup)
        for proposed in (self.space.restricted_to(kept), self.space):
            search = ForestSearch(self.space, self.objective, settings, proposed)
            with suppress(SpaceExhausted):
                query, self._because = search.propose(self.history, rng)
                return query
        raise SpaceExhausted(f"all configurations of space {self.space.name!r} were proposed")
