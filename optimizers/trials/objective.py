"""The objective, as far as a method may know it."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.trials.constraint import Constraint

__all__ = ["FailureCost", "Objective"]

FailureCost = Literal["bound", "worst", "chance"]
"""What a failed trial counts as: the metric's upper bound, the worst finished loss, or chance."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric to minimise and the constraints to meet, as far as a method may know them.

    Attributes:
        metric: Name of the metric.
        unit: Unit of the loss, for instance "percent".
        lower: Smallest loss possible; -inf when there is none.
        upper: Largest loss possible; inf when there is none.
        chance: Loss of guessing without features; None when not known.
        constraints: Limits on quantities besides the loss.
    """

    metric: str = "error"
    unit: str = "percent"
    lower: float = 0.0
    upper: float = 100.0
    chance: float | None = None
    constraints: tuple[Constraint, ...] = ()
