"""Anytime curves: the true value of the incumbent after each tell, and the time to reach a goal."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from time import process_time
from typing import Any, Self

from simulation import Outcome, Simulation

from prefect_tune.optimizers import Configuration, Optimizer, Query

__all__ = ["Contestant", "Curve", "named", "watched"]


@dataclass(frozen=True)
class Curve:
    """The course of a run, recorded at each tell.

    Attributes:
        ends: Seconds from the start, including asks but not reads of the incumbent.
        worths: True value of the incumbent; None before the first incumbent.
        shares: Size of the subset at each tell.
        asks: Seconds of each ask.
    """

    ends: list[float] = field(default_factory=list)
    worths: list[float | None] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    asks: list[float] = field(default_factory=list)

    def lasting(self, goal: float) -> float:
        """Return the seconds after which the incumbent stays within a goal; inf if never."""
        bad = [k for k, w in enumerate(self.worths) if w is None or w > goal]
        after = bad[-1] + 1 if bad else 0
        return self.ends[after] if after < len(self.ends) else inf


def watched(
    optimizer: Optimizer,
    outcome: Callable[[Query], Outcome],
    worth: Callable[[Configuration], float],
    *,
    evaluations: int,
    seconds: float = inf,
) -> Curve:
    """Run a method for a number of evaluations or seconds."""
    curve = Curve()
    study = Simulation(optimizer, outcome, seconds=seconds, clock=process_time)
    for stretch in study.ends():
        best = optimizer.incumbent
        curve.ends.append(stretch.ended)
        curve.worths.append(None if best is None else worth(best.query.configuration))
        curve.shares.append(stretch.trial.query.subset)
        if len(curve.ends) >= evaluations:
            break
    curve.asks.extend(study.ask_seconds)
    return curve


@dataclass(frozen=True)
class Contestant:
    """A method with options, written as `name` or `name:option=value:option=value`."""

    text: str
    method: str
    options: dict[str, Any]

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a contestant; values are JSON if valid, else strings."""
        method, *options = text.split(":")
        pairs = (o.split("=", 1) for o in options)
        return cls(text, method, {name: _value(value) for name, value in pairs})


def named(texts: str) -> list[Contestant]:
    """Parse contestants separated by commas."""
    return [Contestant.of(text) for text in texts.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
