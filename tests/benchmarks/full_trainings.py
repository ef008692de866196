"""What BAPI is compared with in its paper: trainings to the end alone, the next by another rule."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from prefect_tune.optimizers import Budget, Configuration, Objective, Reason, Space, Trial
from prefect_tune.optimizers.methods.bapi.bapi import Bapi, Order, Turn
from prefect_tune.optimizers.methods.bapi.curves import best_training
from prefect_tune.optimizers.methods.bapi.planning import (
    Design,
    PlannedTraining,
    Planning,
)
from prefect_tune.optimizers.search.improvement import expected_improvement

__all__ = ["FULL_TRAININGS", "two_step_improvement"]

Array = NDArray[np.floating[Any]]

_NODES = np.linspace(-4.5, 4.5, 25)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
"""Equally spaced: the best of the others has kinks, for which Gauss's nodes would be too few."""
_MOST = 32
_LEAST_VARIANCE = 1e-10


class FullTurn(Turn):
    """An ask that chooses the entry of its plan by the rule of the method."""

    @property
    def design(self) -> Design:
        """A few random configurations."""
        t_max = self.method.t_max
        return Design.random(self.method.settings.n_first or 1, t_max, t_max)

    def _part(self, configuration: Configuration, done: int, target: int, why: Reason) -> Order:  # noqa: ARG002
        return Order(configuration, self.method.t_max, why)

    def _entry(self, planning: Planning) -> PlannedTraining | None:
        assert isinstance(self.method, FullTrainings)
        return self.method.rule(self, planning)


class FullTrainings(Bapi):
    """BAPI's belief, trainings to the end alone, and another rule for the next configuration."""

    n_planned: ClassVar[int] = 1

    def __init__(self, space: Space, seed: int, objective: Objective | None = None) -> None:
        super().__init__(space, seed, objective, horizon=self.n_planned, n_first=6, p=1.0)

    @property
    def incumbent(self) -> Trial | None:
        """The training with the least loss."""
        return best_training(list(self.curves.values()), self.history)

    def rule(self, turn: FullTurn, planning: Planning) -> PlannedTraining | None:
        """The choice from a plan."""
        raise NotImplementedError

    def _turn(self, budget: Budget, rng: Generator) -> FullTurn:
        return FullTurn(self, budget, dict(self.memo or {}), rng)


def two_step_improvement(
    mean: Array,
    variance: Array,
    covariance: Callable[[int], Array],
    best: float,
    allowed: NDArray[np.bool_],
) -> Array:
    """The expected improvement of a candidate and of the best one after it, shape (m,).

    Scores are the higher the better. The outcome of the first step is a few quadrature points. Only
    the most promising by one step are looked at; others have -inf.

    Args:
        mean: Of the candidates, shape (m,).
        variance: Likewise.
        covariance: From a candidate's number to its covariances with all, shape (m,).
        best: Score that is to be improved on.
        allowed: Which candidates there are, shape (m,).
    """
    one_step = np.where(allowed, _improvement(mean, variance, best), -np.inf)
    values = np.full(len(mean), -np.inf)
    for j in np.argsort(-one_step, kind="stable")[: min(_MOST, int(allowed.sum()))]:
        column = covariance(int(j))
        gain = column / np.sqrt(max(column[j], _LEAST_VARIANCE))
        left = variance - gain**2
        others = allowed.copy()
        others[j] = False
        values[j] = one_step[j]
        if others.any():
            after = [
                _improvement(mean + z * gain, left, max(best, mean[j] + z * gain[j]))[others].max()
                for z in _NODES
            ]
            values[j] += _WEIGHTS @ np.array(after)
    return values


def _improvement(mean: Array, variance: Array, best: float) -> Array:
    return expected_improvement(-mean, np.sqrt(np.maximum(variance, _LEAST_VARIANCE)), -best)


class BapiEi(FullTrainings):
    def rule(self, turn: FullTurn, planning: Planning) -> PlannedTraining | None:
        """Expected improvement: the first of a plan of one."""
        return next(iter(turn.entries(planning, turn.remaining)), None)


class BapiBinoculars(FullTrainings):
    n_planned = 4

    def rule(self, turn: FullTurn, planning: Planning) -> PlannedTraining | None:
        """BINOCULARS: of a batch of fixed size, whatever it costs, that of largest improvement."""
        if turn.remaining.seconds <= 0:
            return None
        entries = turn.entries(planning, replace(turn.remaining, seconds=inf, longest=inf))
        return planning.chosen(entries, 0.0) if entries else None


class BapiMsEi(FullTrainings):
    def rule(self, turn: FullTurn, planning: Planning) -> PlannedTraining | None:
        """MS-EI (Jiang et al. 2020) with two steps: the best that can be afforded."""
        prospects = planning.prospects
        improvement, _ = planning.improvement(1, turn.method.seed)
        rows = planning.belief.at(planning.inputs, prospects.t_max)
        mean, _ = planning.belief.process.predict_half(rows)
        values = two_step_improvement(
            mean,
            improvement.variance,
            improvement.covariance,
            planning.best,
            prospects.targets == 0,
        )
        seconds = prospects.rates * prospects.t_max
        for j in map(int, np.argsort(-values, kind="stable")):
            if np.isfinite(values[j]) and seconds[j] <= turn.remaining.longest:
                return PlannedTraining(j, prospects.t_max, float(seconds[j]))
        return None


FULL_TRAININGS: dict[str, type[FullTrainings]] = {
    "bapi_ei": BapiEi,
    "bapi_binoculars": BapiBinoculars,
    "bapi_ms_ei": BapiMsEi,
}
"""By the name of a contestant."""
