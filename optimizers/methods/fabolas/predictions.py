"""Predictions of full evaluations, made before they ran, to be held against what came out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Prediction"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of one full evaluation.

    Attributes:
        reason: Why it was asked for.
        mean: Of the outcome as it is learned, before it is standardised.
        deviation: Of the outcome, noise included.
        mean_alone: As predicted from full evaluations alone; None with fewer than two.
        deviation_alone: Likewise.
    """

    reason: str
    mean: float
    deviation: float
    mean_alone: float | None = None
    deviation_alone: float | None = None

    def to_json(self) -> list[Any]:
        """Return all fields in order, to nine digits: losses may be tiny, and deviations not 0."""
        return [
            self.reason,
            *(
                None if x is None else float(f"{x:.9g}")
                for x in (self.mean, self.deviation, self.mean_alone, self.deviation_alone)
            ),
        ]

    @classmethod
    def all_of(cls, memo: Mapping[str, Any]) -> "dict[int, Prediction]":
        """Return those kept in a memo, by number of the trial."""
        return {int(number): cls(*fields) for number, fields in memo.get("full", {}).items()}
