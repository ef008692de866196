"""What BAPI is compared with in its paper: trainings to the end alone, the next by another rule."""

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from prefect_tune.optimizers import Objective, Query, Reason, Space
from prefect_tune.optimizers.acquisitions.expected_improvement import expected_improvement
from prefect_tune.optimizers.methods.bapi.bapi import Bapi
from prefect_tune.optimizers.methods.bapi.planning import PlannedTraining, Planning
from prefect_tune.optimizers.methods.bapi.turn import BapiTurn, Order

__all__ = ["FULL_TRAININGS", "two_step_improvement"]

Array = NDArray[np.floating[Any]]
Rule = Callable[["FullPlanning", float], PlannedTraining | None]

_NODES = np.linspace(-4.5, 4.5, 25)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
"""Equally spaced: the best of the others has kinks, for which Gauss's nodes would be too few."""
_MOST = 32
_LEAST_VARIANCE = 1e-10
_BECAUSE = Reason("plan", "trained to the end")


class FullPlanning(Planning):
    """A plan in which every training is one to the end."""

    def enough(self, j: int) -> int | None:
        """All epochs; None if it cannot be trained."""
        return None if self.prospects.configuration(j) is None else self.t_max


class FullTrainings(Bapi):
    """BAPI's process of the losses at the end, and another rule for the next configuration."""

    rule: ClassVar[Rule]
    n_planned: ClassVar[int] = 1

    def __init__(self, space: Space, seed: int, objective: Objective | None = None) -> None:
        given = {"horizon": self.n_planned, "n_first": 6, "p": 1.0, "early_stopping": False}
        super().__init__(space, seed, objective, **given)
        self.settings = replace(self.settings, start="random", n_points=1, sites=None, steady=False)

    def _query(self, turn: BapiTurn, rng: np.random.Generator) -> Query:
        turn.plan = partial(self._planned, turn)  # type: ignore[method-assign]
        return super()._query(turn, rng)

    def _planned(self, turn: BapiTurn) -> Order | None:
        if not turn.n_known:
            return None
        belief, kept = turn.learner.learn(list(turn.curves.values()), turn.memo, turn.rng)
        turn.memo |= kept
        plain = turn._planning(belief)
        planning = FullPlanning(**{f.name: getattr(plain, f.name) for f in fields(plain) if f.init})
        entry = type(self).rule(planning, turn.remaining.seconds - planning.pending_seconds)
        if entry is None:
            return None
        return Order(planning.prospects.configuration(entry.number), entry.epochs, _BECAUSE)


def _most_improving(planning: FullPlanning, budget: float) -> PlannedTraining | None:
    """Expected improvement: the first of a plan of one."""
    return next(iter(planning.entries(budget)), None)


def _best_of_batch(planning: FullPlanning, budget: float) -> PlannedTraining | None:
    """BINOCULARS: of a batch of fixed size, whatever it costs, that of largest improvement."""
    entries = replace(planning, longest=inf).entries(inf if budget > 0 else 0.0)
    return planning.chosen(entries, spent=1.0) if entries else None


def _two_steps_ahead(planning: FullPlanning, budget: float) -> PlannedTraining | None:
    """MS-EI (Jiang et al. 2020) with two steps: the best that can be afforded."""
    improvement, _ = planning.improvement()
    rows = planning.belief.at(planning.prospects.inputs, planning.t_max)
    mean, _ = planning.belief.process.predict_half(rows)
    values = two_step_improvement(
        mean,
        improvement.variance,
        improvement.covariance,
        planning.best,
        planning.prospects.targets == 0,
    )
    for j in map(int, np.argsort(-values, kind="stable")):
        entry = planning._horizon()._entry(j) if np.isfinite(values[j]) else None
        if entry is not None and entry.seconds <= min(budget, planning.longest):
            return entry
    return None


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
    rule = staticmethod(_most_improving)


class BapiBinoculars(FullTrainings):
    rule = staticmethod(_best_of_batch)
    n_planned = 4


class BapiMsEi(FullTrainings):
    rule = staticmethod(_two_steps_ahead)


FULL_TRAININGS: dict[str, type[FullTrainings]] = {
    "bapi_ei": BapiEi,
    "bapi_binoculars": BapiBinoculars,
    "bapi_ms_ei": BapiMsEi,
}
"""By the name of a contestant."""
