"""A trial under way, as far as it is known to those who follow a study."""

from dataclasses import dataclass

__all__ = ["RunningTrial"]


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """Where a trial under way stands.

    Attributes:
        number: Its number.
        path: Its algorithms, in the order of the steps.
        seconds: Seconds since its start, without those in which it waited for others.
        limit_seconds: How many it may take.
        step: Name of the step that it is at; empty before that is known.
        fold: Number of the fold that it is at, as failures have it; None before that is known.
    """

    number: int
    path: tuple[str, ...]
    seconds: float
    limit_seconds: float
    step: str = ""
    fold: int | None = None
