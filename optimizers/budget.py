"""The budget that a study has left, as its optimizer is told at each ask."""

from dataclasses import dataclass


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
        trial_seconds: Limit of a trial that the user has set; None if there is none.
    """

    trials_spent: int = 0
    trials_left: int | None = None
    seconds_spent: float = 0.0
    seconds_left: float | None = None
    ask_seconds: float = 0.0
    n_workers: int = 1
    last_ask_seconds: tuple[float, ...] = ()
    trial_seconds: float | None = None

    @property
    def share_left(self) -> float:
        """Share of the whole budget that is left, by what ends it first; 1 when nothing does."""
        spent_and_left = (
            (self.trials_spent, self.trials_left),
            (self.seconds_spent, self.seconds_left),
        )
        shares = [
            max(left, 0) / max(left + spent, 1e-9)
            for spent, left in spent_and_left
            if left is not None
        ]
        return min(shares, default=1.0)
