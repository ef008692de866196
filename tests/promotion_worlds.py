"""Nights of a series, simulated: predictions of a champion and of challengers on test rows.

A world draws the true values of rows, and the predictions of models of one quality, which are
exchangeable. Models share most of their errors, as models of one table do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np
from numpy.random import Generator

from prefect_tune.tasks.objective.comparison import level_of, paired_comparison
from prefect_tune.tasks.objective.metric import metric_named
from prefect_tune.tasks.objective.predictions import Predictions

NIGHTS = 10
GROWTH = 0.2
"""Rows that each night adds, as a share of the rows of the first night."""


@dataclass(frozen=True)
class Rows:
    """True values (n,), what all models share about each row (n,), and groups (n,) or None."""

    y: Any
    shared: Any
    groups: Any = None

    def first(self, n: int) -> "Rows":
        groups = None if self.groups is None else self.groups[:n]
        return Rows(self.y[:n], self.shared[:n], groups)


class Model(Protocol):
    def __call__(self, rows: Rows, gain: float, rng: Generator) -> Predictions: ...


@dataclass(frozen=True)
class World:
    name: str
    metric: str
    n_classes: int
    rows: Callable[[int, Generator], Rows]
    model: Model


def _two_classes(n: int, rng: Generator) -> Rows:
    return Rows((rng.random(n) < 0.3).astype(np.int32), rng.random(n))


def _mostly_equal_labels(share: float) -> Model:
    """A tenth of the rows is wrong for all models; on a share of rows a model errs by itself."""

    def predict(rows: Rows, gain: float, rng: Generator) -> Predictions:
        is_own = rng.random(len(rows.y)) < share
        own = rng.random(len(rows.y)) < 0.5 * (1 - gain)
        is_wrong = np.where(is_own, own, rows.shared < 0.1)
        return Predictions(np.where(is_wrong, 1 - rows.y, rows.y).astype(np.int32))

    return predict


def _gaussian_rows(n: int, rng: Generator) -> Rows:
    return Rows((rng.random(n) < 0.3).astype(np.int32), rng.normal(size=n))


def _scores(rows: Rows, gain: float, rng: Generator) -> Predictions:
    score = (1 + gain) * rows.y + 0.9 * rows.shared + 0.45 * rng.normal(size=len(rows.y))
    probability = 1 / (1 + np.exp(-score))
    return Predictions(
        (probability > 0.5).astype(np.int32), np.column_stack([1 - probability, probability])
    )


def _heavy_tailed(n: int, rng: Generator) -> Rows:
    return Rows(rng.standard_t(3, size=n), np.zeros(n))


def _numbers(rows: Rows, gain: float, rng: Generator) -> Predictions:
    return Predictions((1 - gain) * rng.normal(size=len(rows.y)))


def _patients(n: int, rng: Generator) -> Rows:
    sizes = 1 + rng.geometric(0.2, size=n)
    groups = np.repeat(np.arange(n), sizes)[:n]
    return Rows(rng.normal(size=n) + rng.normal(size=n)[groups], np.zeros(n), groups)


def _numbers_by_patient(rows: Rows, gain: float, rng: Generator) -> Predictions:
    n = len(rows.y)
    of_patients = rng.normal(size=n)[rows.groups]
    return Predictions((1 - gain) * (of_patients + 0.3 * rng.normal(size=n)))


WORLDS = (
    World("error, 2 % discordant rows", "error", 2, _two_classes, _mostly_equal_labels(0.02)),
    World("error, 20 % discordant rows", "error", 2, _two_classes, _mostly_equal_labels(0.2)),
    World("AUROC", "auroc", 2, _gaussian_rows, _scores),
    World("squared error, heavy tails", "neg_mean_squared_error", 0, _heavy_tailed, _numbers),
    World("squared error, groups", "neg_mean_squared_error", 0, _patients, _numbers_by_patient),
)
TestRows = Literal["same", "growing", "new"]
"""Test rows of the nights: the same ones, more every night, or other ones every night."""


def night_of_promotion(
    world: World, n: int, test_rows: TestRows, gain: float, rng: Generator
) -> int:
    """The first night on which a challenger is promoted, from 1; 0 if none is.

    All challengers are drawn anew, and better than the champion by `gain`; 0 makes them equal.
    """
    metric = metric_named(world.metric)
    most = n + (round(GROWTH * n) * (NIGHTS - 1) if test_rows == "growing" else 0)
    everything = world.rows(most, rng)
    of_champion = world.model(everything, 0.0, rng)
    for night in range(1, NIGHTS + 1):
        m = n + (round(GROWTH * n) * (night - 1) if test_rows == "growing" else 0)
        if test_rows == "new" and night > 1:
            everything = world.rows(n, rng)
            of_champion = world.model(everything, 0.0, rng)
        rows = everything.first(m)
        compared = paired_comparison(
            metric,
            of_champion.take(np.arange(m)),
            world.model(rows, gain, rng),
            rows.y,
            rows.groups,
            n_classes=world.n_classes,
            margin=0.0,
            level=level_of(night),
            rng=rng,
        )
        if compared.is_better:
            return night
    return 0


@lru_cache
def gain_of_standard_errors(world: World, n: int, standard_errors: float = 2.0) -> float:
    """The gain at which the mean difference is so many standard deviations of itself."""
    metric = metric_named(world.metric)
    low, high = 0.0, 1.0

    def reached(gain: float) -> float:
        rng = np.random.default_rng(7)  # the same rows for each gain
        found = []
        for _ in range(300):
            rows = world.rows(n, rng)
            losses = [
                metric.loss(rows.y, world.model(rows, of, rng), world.n_classes)
                for of in (0.0, gain)
            ]
            found.append(losses[0] - losses[1])
        return float(np.mean(found) / np.std(found, ddof=1))

    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) < standard_errors else (low, middle)
    return (low + high) / 2


def share_with_error(found: Sequence[bool]) -> tuple[float, float]:
    """The share of true values, and its standard error."""
    share = float(np.mean(found))
    return share, float(np.sqrt(share * (1 - share) / len(found)))
