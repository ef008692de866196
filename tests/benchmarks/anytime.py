"""Anytime curves: what a method's choice is worth after each tell, and when that stays good."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from time import process_time
from typing import Any, Self

from simulation import Outcome, Simulation
from worlds import evaluation

from prefect_tune.optimizers import (
    Budget,
    Configuration,
    NotYet,
    Optimizer,
    Query,
    Trial,
)

__all__ = ["Contestant", "Curve", "in_batches", "named", "watched"]


@dataclass(frozen=True)
class Curve:
    """One run, tell by tell.

    Attributes:
        ends: Seconds from the start, asks included; the incumbent is looked at off the clock.
        worths: True worth of the incumbent; None before there is one.
        shares: Size that was told.
        draws: Family of the subset that was told.
        asks: Seconds of each ask.
        losses: What was told.
        told: Values of the model's hyperparameters of what was told.
        chosen: Those of the incumbent.
    """

    ends: list[float]
    worths: list[float | None]
    shares: list[float]
    draws: list[int]
    asks: list[float]
    losses: list[float | None]
    told: list[list[Any]]
    chosen: list[list[Any]]

    def add(
        self,
        optimizer: Optimizer,
        trial: Trial,
        ended: float,
        worth: Callable[[Configuration], float],
    ) -> None:
        """Note what was told, and the incumbent after it."""
        best = optimizer.incumbent
        self.ends.append(ended)
        self.worths.append(None if best is None else worth(best.query.configuration))
        self.shares.append(trial.query.subset)
        self.draws.append(trial.query.subset_draw)
        self.losses.append(trial.loss)
        self.told.append(_values(trial.query.configuration))
        self.chosen.append([] if best is None else _values(best.query.configuration))

    def lasting(self, goal: float) -> float:
        """Seconds after which the incumbent is never again worse than a goal; inf if it is."""
        bad = [w is None or w > goal for w in self.worths]
        if not bad or bad[-1]:
            return float("inf")
        last_bad = max((k for k, is_bad in enumerate(bad) if is_bad), default=-1)
        return self.ends[last_bad + 1]

    def first(self, goal: float) -> float:
        """Seconds after which the incumbent is no worse than a goal for the first time."""
        pairs = zip(self.ends, self.worths, strict=True)
        return next((e for e, w in pairs if w is not None and w <= goal), float("inf"))


def watched(
    optimizer: Optimizer,
    outcome: Callable[[Query], Outcome],
    worth: Callable[[Configuration], float],
    *,
    evaluations: int,
    seconds: float = float("inf"),
) -> Curve:
    """Run a method until so many evaluations are told, or so many seconds are spent."""
    curve = Curve([], [], [], [], [], [], [], [])
    study = Simulation(optimizer, outcome, seconds=seconds, clock=process_time)
    for stretch in study.ends():
        curve.add(optimizer, stretch.trial, stretch.ended, worth)
        if len(curve.ends) >= evaluations:
            break
    curve.asks.extend(study.ask_seconds)
    return curve


def in_batches(
    optimizer: Optimizer,
    outcome: Callable[[Query], Outcome],
    worth: Callable[[Configuration], float],
    *,
    evaluations: int,
    size: int,
) -> Curve:
    """Run a method that is told when so many asks were made: none knows the others' outcomes."""
    curve = Curve([], [], [], [], [], [], [], [])
    now = 0.0
    while len(curve.ends) < evaluations:
        under_way: list[tuple[Trial, float, float]] = []
        for _ in range(size):
            budget = Budget(
                trials_spent=len(curve.ends),
                seconds_spent=sum(t.cost_seconds for t in optimizer.history),
                ask_seconds=sum(curve.asks),
                n_workers=size,
                last_ask_seconds=tuple(curve.asks[-10:]),
            )
            started = process_time()
            try:
                query = optimizer.ask(budget)
            except NotYet:
                break
            curve.asks.append(process_time() - started)
            number = len(optimizer.history) - 1
            under_way.append((Trial(number, query).started(), *outcome(query)))
        now += sum(curve.asks[-len(under_way) :]) + max(took for _, _, took in under_way)
        for trial, loss, took in under_way:
            told = trial.completed(evaluation(loss, took))
            optimizer.tell(told)
            curve.add(optimizer, told, now, worth)
    return curve


def _values(configuration: Configuration) -> list[Any]:
    return [value for _, choice in configuration.choices for _, value in choice.values]


@dataclass(frozen=True)
class Contestant:
    """A method with options, as written `name` or `name:option=value:option=value`."""

    text: str
    method: str
    options: dict[str, Any]

    @classmethod
    def of(cls, text: str) -> Self:
        """Read it; values are JSON where they can be, else texts."""
        method, *options = text.split(":")
        pairs = [o.split("=", 1) for o in options]
        return cls(text, method, {name: _value(value) for name, value in pairs})


def named(texts: str) -> list[Contestant]:
    """Contestants, separated by commas."""
    return [Contestant.of(text) for text in texts.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
