"""Anytime curves: the worth of a method's choice after each tell, and when it stays good."""

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
    """One run, tell by tell.

    Attributes:
        ends: Seconds from the start, asks included; looking at the incumbent takes none.
        worths: True worth of the incumbent; None before there is one.
        shares: Size of each subset that was told.
        asks: Seconds of each ask.
    """

    ends: list[float] = field(default_factory=list)
    worths: list[float | None] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    asks: list[float] = field(default_factory=list)

    def lasting(self, goal: float) -> float:
        """Seconds until the incumbent is no worse than a goal to the end of the run; inf if not."""
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
    """Run a method until so many evaluations are told, or so many seconds are spent."""
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
    """A method with options, as written `name` or `name:option=value:option=value`."""

    text: str
    method: str
    options: dict[str, Any]

    @classmethod
    def of(cls, text: str) -> Self:
        """Read it; values are JSON where they can be, else texts."""
        method, *options = text.split(":")
        pairs = (o.split("=", 1) for o in options)
        return cls(text, method, {name: _value(value) for name, value in pairs})


def named(texts: str) -> list[Contestant]:
    """Contestants, separated by commas."""
    return [Contestant.of(text) for text in texts.split(",")]


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
