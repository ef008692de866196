"""The budget left to a study, which its optimizer receives at each ask."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """The budget of a study at one ask; an unlimited remainder is None.

    Attributes:
        trials_left: Configurations that may still be started. At 0, started ones may be resumed.
        ask_seconds, last_ask_seconds: Seconds of all asks, and of recent ones, newest last.
        n_workers: Trials that may run at the same time.
        trial_seconds: Time limit of a trial set by the user, if any.
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
        """Share of the whole budget left, by the tighter limit; 1 without limits."""
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
