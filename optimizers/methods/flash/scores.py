"""FLASH's linear models: improvement per cost (section 3.3, eq. 2 and 4), and Phase 3's effects."""

from collections.abc import Iterable

import numpy as np
from numpy.random import Generator

from prefect_tune.optimizers.methods.flash.cost import PathCost
from prefect_tune.optimizers.methods.flash.design import PathTable
from prefect_tune.optimizers.methods.flash.shared_values import BestValues
from prefect_tune.optimizers.methods.smac import ForestSearch, Predict
from prefect_tune.optimizers.models.path_linear import RIDGE, PathLinear
from prefect_tune.optimizers.search.improvement import log_expected_improvement, log_feasibility
from prefect_tune.optimizers.space.vectors import TIE, Array
from prefect_tune.optimizers.trials.history import History, imputed_losses, worst_excess
from prefect_tune.optimizers.trials.objective import FailureCost, Objective
from prefect_tune.optimizers.trials.trial import Trial


class PathScores:
    """Scores of the B paths of a table, given a history; follows the paper if `is_paper`."""

    def __init__(
        self, objective: Objective, table: PathTable, cost: PathCost, *, is_paper: bool
    ) -> None:
        self._objective, self._table, self._cost = objective, table, cost
        self._is_paper = is_paper

    def terms(self, history: History, *, is_next_run: bool = True) -> tuple[Array, Array]:
        """Return the log expected improvement and the log divisor of each path, shape (B,) each.

        Pending paths are assumed to have their predicted loss. The divisor is the logarithm of the
        run time, as in the paper, so that slow but accurate paths are chosen. If `is_next_run`,
        cached steps take their load time. If not `is_next_run`, the terms describe many runs with
        other values: xi is 0 and no step is cached. The improvement is measured from the best loss
        that counts (see `_told`).
        """
        trials, losses = self._told(history)
        seen = self._encoded(trials)
        model = self._learned(history, seen, losses)
        for path in self._encoded(history.pending):
            model = model.imagining(path)
        first_runs = self._table.encoded_first_runs()
        deviation = model.deviation(first_runs)
        xi = 0.0
        if is_next_run and self._is_paper:
            scale = self._objective.upper - self._objective.lower
            xi = scale if np.isfinite(scale) else float(deviation.mean())
        excess = worst_excess(history, trials)
        best = float(np.min(losses[excess <= 0], initial=losses.max()))
        log_ei = log_expected_improvement(model.mean(first_runs), deviation, best, xi)
        if history.constraints:
            feasible = self._fitted(seen, excess)
            log_ei += log_feasibility(feasible.mean(first_runs), feasible.deviation(first_runs))
        if self._is_paper:
            log_seconds = np.log(np.maximum([t.cost_seconds for t in trials], 1e-3))
            expected = self._fitted(seen, log_seconds).mean(first_runs)
            return log_ei, np.log(np.maximum(expected, 0.5))
        # With the mean as the unit of time, ln(e + time) is at least 1.
        seconds = self._seconds(history if is_next_run else None)
        return log_ei, np.log(np.log(np.e + seconds / seconds.mean()))

    def best_values(self, history: History) -> BestValues:
        """Return the shared values with the lowest predicted loss so far, by model family."""
        shared = self._table.shared
        assert shared is not None  # noqa: S101 - callers check it
        if not history.complete:
            return shared.best()
        trials, losses = self._told(history)
        model = self._learned(history, self._encoded(trials), losses)
        return shared.best(model.coefficients[-shared.width :] / (np.ptp(losses) or 1.0))

    def _seconds(self, history: History | None) -> Array:
        """Return the predicted seconds of each path's first run, shape (B,); see `PathCost`."""
        return self._cost.after(history)(*self._table.first_runs())

    def _encoded(self, trials: Iterable[Trial]) -> Array:
        return self._table.encoded(trial.query.configuration for trial in trials)

    def _told(self, history: History) -> tuple[list[Trial], Array]:
        """Return the trials that count, and their losses."""
        rule: FailureCost = "bound" if self._is_paper else "worst"
        trials, losses = imputed_losses(history, self._objective, rule)
        if self._is_paper or not trials:
            return trials, losses
        # Shared values chosen by a dropped prior would distort the scores of the trials'
        # algorithms.
        kept = [i for i, t in enumerate(trials) if t.query.configuration not in history.misled]
        kept = kept or list(range(len(trials)))
        # Only the first run of a path counts, because tuning a path says nothing about its
        # algorithms in other paths.
        rows = self._encoded(trials[i] for i in kept)
        _, first = np.unique(rows, axis=0, return_index=True)
        kept = [kept[i] for i in sorted(first)]
        return [trials[i] for i in kept], losses[kept]

    def _learned(self, history: History, paths: Array, losses: Array) -> PathLinear:
        older = history.older
        if not len(older):
            return self._fitted(paths, losses)
        rows = np.vstack([self._table.encoded(older.configurations), paths])
        weights = np.append(older.weights, np.ones(len(paths)))
        return self._fitted(rows, np.append(older.losses, losses), weights)

    def _fitted(self, paths: Array, targets: Array, weights: Array | None = None) -> PathLinear:
        # Equation (1) has no intercept, so an unseen algorithm adds 0 to the loss.
        is_paper = self._is_paper
        ridge = 1.0 if is_paper else RIDGE
        return PathLinear.fit(paths, targets, ridge, has_intercept=not is_paper, weights=weights)


class EffectSearch(ForestSearch):
    """A search by a linear model of effects, with a forest for the residuals.

    The linear model has columns for algorithms, as in eq. 1, and for the position of each
    hyperparameter and the square of the position. All trials of an algorithm inform all of the
    paths with the algorithm. A forest alone would need trials of each path.
    """

    def _fitted(self, features: Array, targets: Array, seed: int, weights: Array | None) -> Predict:
        seen = self._effects(features)
        linear = PathLinear.fit(seen, targets, RIDGE, weights=weights)
        forest = super()._fitted(features, targets - linear.mean(seen), seed, weights)

        def predict(features: Array) -> tuple[Array, Array]:
            effects = self._effects(features)
            residual, deviation = forest(features)
            of_effects = linear.residual_variance * linear.leverage(effects)
            return linear.mean(effects) + residual, np.sqrt(deviation**2 + of_effects)

        return predict

    def _effects(self, features: Array) -> Array:
        paths, positions = np.split(features, [len(self.candidates.algorithms)], axis=1)
        centered = np.where(positions < 0, 0.0, 2 * positions - 1)
        return np.hstack([paths, centered, centered**2])


def ranked(scores: Array, rng: Generator | None) -> list[int]:
    """Return indices by decreasing score; with `rng`, ties are in random order."""
    order = np.arange(len(scores)) if rng is None else rng.permutation(len(scores))
    rounded = np.round((scores[order] - scores.max()) / TIE)
    return [int(i) for i in order[np.argsort(-rounded, kind="stable")]]
