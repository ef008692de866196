"""The unit in which curves are learned: scores, the higher the better."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal, Self

import numpy as np

from prefect_tune.optimizers.surrogates.kernel import Array
from prefect_tune.optimizers.trials.objective import Objective

ScoreKind = Literal["auto", "log", "raw"]
"""Minus the logarithm of the distance from the least loss possible, minus the loss, or of these
the one under which what was told is likelier."""

_ROWS = 200
"""Held-out rows, where their number is not known."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Losses as scores and back; both keep the order.

    Attributes:
        lower: Least loss possible.
        offset: Added to the distance from it, or a perfect loss would be infinitely far from all
            others; None where scores are minus the losses.
    """

    lower: float = 0.0
    offset: float | None = None

    @classmethod
    def of(cls, objective: Objective, kind: ScoreKind) -> Self:
        """Return the scores of an objective: half a row in error is added to the loss.

        Losses without a least and a largest value are scored as they are.
        """
        width = objective.upper - objective.lower
        if kind == "raw" or not isfinite(width):
            return cls()
        return cls(objective.lower, 0.5 * width / (objective.n_held_out or _ROWS))

    @classmethod
    def all_of(cls, objective: Objective, kind: ScoreKind) -> tuple[Self, ...]:
        """Return the scores that may be chosen among, at least one."""
        log, raw = cls.of(objective, "log"), cls.of(objective, "raw")
        return (log, raw) if kind == "auto" and log != raw else (cls.of(objective, kind),)

    @property
    def kind(self) -> ScoreKind:
        """Which they are."""
        return "raw" if self.offset is None else "log"

    def log_slopes(self, losses: Array) -> Array:
        """Return ln |d score / d loss|, of the losses' shape."""
        if self.offset is None:
            return np.zeros_like(losses)
        return -np.log(np.maximum(losses - self.lower, 0.0) + self.offset)

    def of_losses(self, losses: Array) -> Array:
        """Return scores, of the losses' shape."""
        if self.offset is None:
            return -losses
        return -np.log(np.maximum(losses - self.lower, 0.0) + self.offset)

    def of_loss(self, loss: float) -> float:
        """Return the score of one loss."""
        return float(self.of_losses(np.array([loss]))[0])

    def losses(self, scores: Array) -> Array:
        """Return the losses that scores stand for, not below the least one possible."""
        if self.offset is None:
            return -scores
        return self.lower + np.maximum(np.exp(-scores) - self.offset, 0.0)

    def loss_of_gain(self, gain: Array, score: float) -> Array:
        """Return about how much less loss a small gain over a score is, of the gain's shape."""
        return gain if self.offset is None else gain * float(np.exp(-score))
