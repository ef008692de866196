"""BINOCULARS and BOIL on recorded learning curves, as comparators of BAPI.

Two comparators of BAPI's paper are left out. GLASSES was always among the worst two methods in the
paper. BMS-EI optimizes a tree of future evaluations, which would be a large program of its own.
"""

import warnings
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from curve_tables import Table
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern, WhiteKernel

from prefect_tune.optimizers import Budget, Hyperband, Query, RandomSearch, Trial
from prefect_tune.optimizers.space.vectors import CandidateSpace

__all__ = ["Binoculars", "Boil"]

N_RANDOM = 5
"""Random configurations before the first proposal of a model."""
N_SAMPLES = 256
MOST_AHEAD = 8
"""Largest number of joint evaluations that BINOCULARS plans."""
MOST_POINTS = 8
"""Points of a learning curve that BOIL gives to its Gaussian process."""
STEEPNESS, MIDDLES = (2.0, 8.0), (0.0, 0.25, 0.5)
"""Growth and middle of the logistic weights of a curve, relative to all epochs."""
Array = NDArray[np.float64]


class OfRows:
    """Mixin: features of the rows of a table, and Gaussian processes over these features."""

    table: Table

    @cached_property
    def features(self: Any) -> Array:
        """Features of all rows: algorithms as indicators, and values in the unit cube."""
        candidates = CandidateSpace(self.table.space)
        found = np.asarray(candidates.features(candidates.encode(self.table.configurations)), float)
        return (found - found.min(0)) / np.maximum(np.ptp(found, axis=0), 1e-12)

    @cached_property
    def number(self: Any) -> dict[Any, int]:
        """Row of each configuration."""
        return {c: i for i, c in enumerate(self.table.configurations)}

    def fitted(self, inputs: Array, targets: Array) -> GaussianProcessRegressor:
        """Fit a Gaussian process to standardized targets."""
        kernel = Matern(np.full(inputs.shape[1], 0.5), (0.05, 5.0), 2.5) + WhiteKernel(0.01)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return GaussianProcessRegressor(kernel, normalize_y=True).fit(inputs, targets)


class Binoculars(OfRows, RandomSearch):
    """Joint q-EI over the evaluations left, then the single best of this batch.

    Jiang, Chai, Gonzalez and Garnett 2020, "BINOCULARS for efficient, nonmyopic sequential
    experimental design". The batch is picked greedily from all free rows by joint samples of the
    posterior. Each evaluation trains in full.
    """

    def _propose(self: Any, budget: Budget, rng: np.random.Generator) -> Query:
        told = [t for t in self.history.complete if t.loss is not None]
        if len(told) < N_RANDOM:
            return Query(self.begin(rng))
        rows = [self.number[t.query.configuration] for t in told]
        losses = np.array([t.loss for t in told])
        process = self.fitted(self.features[rows], losses)
        mean_cost = np.mean([t.cost_seconds for t in told])
        left = (budget.seconds_left or 0) / mean_cost
        free = np.array(self.free)
        draws = process.sample_y(self.features[free], N_SAMPLES, int(rng.integers(2**31)))
        best = np.full(N_SAMPLES, losses.min())
        batch = list[int]()
        for _ in range(int(np.clip(left, 1, min(MOST_AHEAD, len(free))))):
            gains = np.maximum(best - draws, 0).mean(axis=1)
            gains[batch] = -1
            batch.append(int(gains.argmax()))
            best = np.minimum(best, draws[batch[-1]])
        single = np.maximum(losses.min() - draws[batch], 0).mean(axis=1)
        return Query(self.table.configurations[free[batch[int(single.argmax())]]])


class Boil(OfRows, Hyperband):
    """Expected improvement per second over configurations and epochs, by compressed curves.

    Nguyen, Schulze and Osborne 2020, "Bayesian optimization for iterative learning". A curve is
    compressed to its mean under logistic weights, whose two parameters maximize the likelihood of
    the Gaussian process. Seconds are linear in configurations and epochs. Departure: training
    continues from earlier epochs of the same configuration.
    """

    _weights: tuple[float, float] = (8.0, 0.25)

    @property
    def incumbent(self) -> Trial | None:
        """The trial with the least loss after any number of epochs."""
        told = [t for t in self.history if t.loss is not None]
        return min(told, key=lambda t: (t.loss, t.number), default=None)

    def _propose(self: Any, budget: Budget, rng: np.random.Generator) -> Query:  # noqa: ARG002
        told = [t for t in self.history if t.evaluation is not None and t.evaluation.curve]
        total = self.table.epochs
        if len(told) < N_RANDOM:
            return Query(self.begin(rng))
        longest = {t.query.configuration: t for t in sorted(told, key=_epochs)}
        curves = [t.evaluation.curve for t in longest.values()]
        rows = [self.number[c] for c in longest]
        if len(told) % 5 == 0:
            choices = list(product(STEEPNESS, MIDDLES))
            fits = [self._learned(rows, curves, weights) for weights in choices]
            likelihoods = [p.log_marginal_likelihood_value_ for p, _ in fits]
            self._weights = choices[int(np.argmax(likelihoods))]
        process, utilities = self._learned(rows, curves, self._weights)
        n_grid = np.unique(np.linspace(1, total, 10).round().astype(int))
        inputs = np.vstack([self._inputs(range(len(self.features)), n) for n in n_grid])
        mean, deviation = process.predict(inputs, return_std=True)
        z = (mean - max(utilities)) / np.maximum(deviation, 1e-12)
        gain = deviation * (z * norm.cdf(z) + norm.pdf(z))
        of_trials = np.vstack(
            [self._inputs([self.number[t.query.configuration]], _epochs(t)) for t in told]
        )
        design = np.column_stack([of_trials, np.ones(len(told))])
        spent = np.array([t.cost_seconds for t in told])
        slopes = np.linalg.lstsq(
            design.T @ design + 1e-3 * np.eye(design.shape[1]), design.T @ spent
        )[0]
        seconds = np.column_stack([inputs, np.ones(len(inputs))]) @ slopes
        score = gain / np.maximum(seconds, spent.min())
        for i in np.argsort(-score, kind="stable"):
            row, n = int(i) % len(self.features), int(n_grid[i // len(self.features)])
            configuration = self.table.configurations[row]
            if configuration not in longest or _epochs(longest[configuration]) < n:
                return Query(configuration, epochs=None if n == total else n)
        return Query(self.begin(rng))

    def _inputs(self: Any, rows: Sequence[int], n: int) -> Array:
        """Return features of rows and the fraction of the epochs."""
        return np.column_stack([self.features[rows], np.full(len(rows), n / self.table.epochs)])

    def _learned(
        self: Any, rows: list[int], curves: list[Any], weights: tuple[float, float]
    ) -> tuple[GaussianProcessRegressor, list[float]]:
        """Fit a process to compressed curves, and return the utilities of the whole curves."""
        inputs, targets, ends = [], list[float](), list[float]()
        for row, curve in zip(rows, curves, strict=True):
            for n in np.unique(np.linspace(1, len(curve), MOST_POINTS).round().astype(int)):
                at = np.arange(1, n + 1) / self.table.epochs
                share = 1 / (1 + np.exp(-weights[0] * (at - weights[1] * at[-1])))
                inputs.append(self._inputs([row], n))
                targets.append(float(-np.asarray(curve[:n]) @ share / share.sum()))
            ends.append(targets[-1])
        return self.fitted(np.vstack(inputs), np.array(targets)), ends


def _epochs(trial: Trial) -> int:
    return len(trial.evaluation.curve) if trial.evaluation else 0
