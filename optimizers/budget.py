"""The budget that a study has left, as its optimizer is told at each ask."""

from dataclasses import dataclass

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a study may still spend when an optimizer is asked.

    Attributes:
        trials_spent: Trials told so far.
        trials_left: Trials that may still be asked for; None when not limited.
        seconds_spent: Worker-seconds spent so far.
        seconds_left: Worker-seconds that may still be spent; None when not limited.
        ask_seconds: Seconds that the optimizer's own asks have taken so far.
    """

    trials_spent: int = 0
    trials_left: int | None = None
    seconds_spent: float = 0.0
    seconds_left: float | None = None
    ask_seconds: float = 0.0
