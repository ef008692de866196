"""The remaining budget of a study, which the optimizer receives with each ask."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """The spent and remaining budget of a study at the time of an ask.

    `trials_left`, `seconds_left` and `trial_seconds` are None without a limit.

    Attributes:
        trials_spent: Number of configurations started.
        trials_left: Number of configurations that may still be started. If none may be started,
            earlier configurations may still be resumed.
        seconds_spent: Worker-seconds spent.
        seconds_left: Worker-seconds left.
        ask_seconds: Total duration of all asks.
        n_workers: Number of trials that may run at the same time.
        last_ask_seconds: Durations of recent asks, newest last.
        trial_seconds: Time limit of a trial.
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
        """Fraction of the budget left, in [0, 1], under the tighter limit; 1 without limits."""
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
