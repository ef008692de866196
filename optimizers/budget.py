"""The budget that a study has left, as its optimizer is told at each ask."""

from dataclasses import dataclass

__all__ = ["Budget"]


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a study may still spend when an optimizer is asked.

    Attributes:
        trials_spent: Trials told so far.
        trials_left: Configurations that may still be begun; None when not limited. At 0 only those
            begun may be gone on with.
        seconds_spent: Worker-seconds spent so far.
        seconds_left: Worker-seconds that may still be spent; None when not limited.
        ask_seconds: Seconds that the optimizer's own asks have taken so far.
        n_workers: Trials that may run at the same time.
        last_ask_seconds: Seconds of the last asks, newest last.
    """

    trials_spent: int = 0
    trials_left: int | None = None
    seconds_spent: float = 0.0
    seconds_left: float | None = None
    ask_seconds: float = 0.0
    n_workers: int = 1
    last_ask_seconds: tuple[float, ...] = ()
