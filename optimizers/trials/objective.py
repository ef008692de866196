"""The objective, as far as a method may know it."""

from dataclasses import dataclass
from typing import Literal

from prefect_tune.optimizers.trials.constraint import Constraint

__all__ = ["FailureCost", "Objective"]

FailureCost = Literal["bound", "worst", "chance"]
"""What a failed trial counts as: the metric's upper bound, the worst finished loss, or chance."""


@dataclass(frozen=True, slots=True)
class Objective:
    """The metric, the constraints and the size of the data, as far as a method may know them.

    Attributes:
        metric: Name of the metric.
        unit: Unit of the loss, for instance "percent".
        lower: Smallest loss possible; -inf when there is none.
        upper: Largest loss possible; inf when there is none.
        chance: Loss of guessing without features; None when not known.
        constraints: Limits on quantities besides the loss.
        n_rows: Training rows of the smallest fold; None, like what follows, when not known.
        n_held_out: Held-out rows of the smallest fold.
        n_classes: Classes; 0 when numbers are predicted.
        n_rarest: Training rows of the rarest class in the smallest fold.
        n_folds: Folds of a full evaluation.
        epochs: Epochs of a full training (t_max); None when models are fitted at once.
        iterative: Ids of the model algorithms that train in epochs.
    """

    metric: str = "error"
    unit: str = "percent"
    lower: float = 0.0
    upper: float = 100.0
    chance: float | None = None
    constraints: tuple[Constraint, ...] = ()
    n_rows: int | None = None
    n_held_out: int | None = None
    n_classes: int | None = None
    n_rarest: int | None = None
    n_folds: int | None = None
    epochs: int | None = None
    iterative: frozenset[str] = frozenset()
