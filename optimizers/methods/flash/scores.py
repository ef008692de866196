"""FLASH's linear models of all paths, and their improvement per cost (section 3.3, eq. 2 and 4)."""

from functools import cached_property

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.acquisitions.expected_improvement import log_expected_improvement
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.paths.shared_values import BestValues, SharedValues
from prefect_tune.optimizers.paths.table import PathTable
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.space.unit_interval import Array
from prefect_tune.optimizers.surrogates.costs import Costs
from prefect_tune.optimizers.surrogates.linear import PathLinear, guarded_log_seconds
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.losses import imputed_losses
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.trial import Trial

LEAST_SHARE = 0.01
"""Least cost of a path, as a share of the mean."""
_TIE = 1e-12


class PathScores:
    """Scores of the B paths of a table, from any history."""

    def __init__(
        self, options: FlashOptions, objective: Objective, table: PathTable, cost: PathCost
    ) -> None:
        self._options, self._objective = options, objective
        self._table, self._cost = table, cost

    def log_eips(self, history: History) -> Array:
        """Return ln of the expected improvement per cost of the next run of each path, shape (B,).

        Cached steps count at their load time. Pending paths are assumed to return their prediction.
        """
        log_ei, log_cost = self.terms(history)
        return log_ei - log_cost

    def terms(self, history: History) -> tuple[Array, Array]:
        """Return log expected improvement and log divisor, shape (B,) each."""
        return self._terms(history, self._xi, once=True)

    def log_eips_of_many_runs(self, history: History) -> Array:
        """Return `log_eips` of many runs with other values, uncached and at xi = 0, shape (B,).

        Divide by log time, as in the paper, so that slow but accurate paths survive pruning.
        """
        log_ei, log_cost = self._terms(history, 0.0, once=False)
        return log_ei - log_cost

    def best_values(self, history: History) -> BestValues:
        """Return the shared values that look best so far, by kind of model."""
        shared = self._table.shared
        assert shared is not None  # noqa: S101 - callers check it
        if not history.complete:
            return shared.best()
        trials, losses = self._told(history)
        model = self._learned(history, self._table.encoded(trials), losses)
        return shared.best(model.coefficients[-shared.width :])

    def seconds(self, history: History) -> Array:
        """Return predicted seconds of the next run of each path, shape (B,)."""
        is_new = np.zeros(len(self._table), dtype=np.bool_)
        if self._options.start == "defaults":
            is_new = self._table.without_first_run(history)
        return self._cost.seconds(history, is_new)

    def _told(self, history: History) -> tuple[list[Trial], Array]:
        failure_cost = self._options.failure_cost
        assert failure_cost is not None  # noqa: S101 - resolved
        trials, losses = imputed_losses(history, self._objective, failure_cost)
        # Values that a dropped prior chose would count against the algorithms that have them.
        kept = [i for i, t in enumerate(trials) if t.query.configuration not in history.misled]
        if not history.misled or not kept:
            return trials, losses
        return [trials[i] for i in kept], losses[kept]

    def _terms(self, history: History, xi: float | None, *, once: bool) -> tuple[Array, Array]:
        trials, losses = self._told(history)
        seen = self._table.encoded(trials)
        model = self._learned(history, seen, losses)
        for path in self._table.encoded(history.pending):
            model = model.imagining(path)
        first_runs = self._table.encoded_first_runs()
        deviation = model.deviation(first_runs)
        margin = float(deviation.mean()) if xi is None else xi
        best = float(history.losses.min())
        log_ei = log_expected_improvement(model.mean(first_runs), deviation, best, margin)
        seconds = np.array([t.cost_seconds for t in trials])
        return log_ei, self._log_cost(history, seen, seconds, once=once)

    def _log_cost(self, history: History, seen: Array, seconds: Array, *, once: bool) -> Array:
        rule = self._options.cost
        if rule == "steps" and not once:
            return np.log(guarded_log_seconds(self._cost.seconds(history, None)))
        if rule == "steps":
            predicted = self.seconds(history)
            least = LEAST_SHARE * float(predicted.mean())
            return np.log(np.maximum(predicted, least)) if least > 0 else np.zeros(len(predicted))
        if rule == "none":
            return np.zeros(len(self._table))
        if rule is None:  # the paper's
            targets, floor = np.log(np.maximum(seconds, 1e-3)), 0.5
        else:
            targets, floor = guarded_log_seconds(seconds), 1.0
        expected = self._fitted(seen, targets).mean(self._table.encoded_first_runs())
        return np.log(np.maximum(expected, floor))

    def _learned(self, history: History, paths: Array, losses: Array) -> PathLinear:
        older = history.older
        if not len(older):
            return self._fitted(paths, losses)
        rows = np.vstack([self._table.encoded_configurations(older.configurations), paths])
        weights = np.append(older.weights, np.ones(len(paths)))
        return self._fitted(rows, np.append(older.losses, losses), weights)

    def _fitted(self, paths: Array, targets: Array, weights: Array | None = None) -> PathLinear:
        # Equation (1) has no intercept, so an unseen algorithm adds a loss of 0.
        given = self._options
        return PathLinear.fit(
            paths, targets, given.ridge, has_intercept=not given.is_paper, weights=weights
        )

    @property
    def _xi(self) -> float | None:
        if self._options.xi is not None or not self._options.is_paper:
            return self._options.xi
        scale = self._objective.upper - self._objective.lower
        return scale if np.isfinite(scale) else None


def ranked(scores: Array, rng: Generator | None) -> list[int]:
    """Return indices by falling score, with ties in random order if there is an `rng`."""
    order = np.arange(len(scores)) if rng is None else rng.permutation(len(scores))
    rounded = np.round(scores[order] / _TIE) * _TIE
    return [int(i) for i in order[np.argsort(-rounded, kind="stable")]]


class PathModels:
    """The paths of a space, their costs and scores; each is built when first used.

    `seed` samples the paths if they are too many to list. `costs` predicts seconds if trials first
    run on part of the rows.
    """

    def __init__(
        self,
        space: Space,
        seed: int,
        objective: Objective,
        options: FlashOptions,
        *,
        costs: Costs | None = None,
    ) -> None:
        self._costs = costs
        self._space, self._seed, self._objective = space, seed, objective
        self._options = options

    def learn(self, history: History) -> None:
        """Update the shared values for first runs of paths."""
        if self.table.shared is not None:
            self.table.best = self.scores.best_values(history)
            self.cost.take(self.table.best)

    @cached_property
    def table(self) -> PathTable:
        """The paths by index; shared values have columns unless all values are drawn."""
        has_defaults = self._options.start == "defaults"
        shared = SharedValues(self._space) if has_defaults else None
        return PathTable(self._space, self._seed, shared)

    @cached_property
    def cost(self) -> PathCost:
        """Predicts the seconds of each path, step by step."""
        return PathCost(self._space, self.table.paths, self.table.shared, self._costs)

    @cached_property
    def scores(self) -> PathScores:
        """Predicts the improvement per cost of each path."""
        return PathScores(self._options, self._objective, self.table, self.cost)
