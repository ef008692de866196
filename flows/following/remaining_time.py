"""When a search will end, as far as that can be said."""

from collections import deque

__all__ = ["RemainingTime"]

_LAST = 20
"""Trials whose rate counts: what was slow or quick an hour ago says little."""


class RemainingTime:
    """Predicts the seconds that a search has left.

    Args:
        seconds: Time of the study when the search begins.
    """

    def __init__(self, seconds: float) -> None:
        self._ends = deque([seconds], maxlen=_LAST + 1)

    def ended(self, seconds: float) -> None:
        """Note that a trial has ended."""
        self._ends.append(seconds)

    def seconds(
        self,
        now: float,
        *,
        seconds_total: float | None,
        trials_total: int | None,
        n_ended: int,
        n_begun: int,
        n_running: int,
    ) -> float | None:
        """Return what is left until the first of the bounds; None where nothing can be said.

        Args:
            now: Time of the study.
            seconds_total: Time in all, if that is bounded.
            trials_total: Configurations in all, if that is bounded.
            n_ended: Trials that have ended.
            n_begun: Configurations begun.
            n_running: Trials under way.
        """
        by_clock = None if seconds_total is None else max(seconds_total - now, 0.0)
        n_last = len(self._ends) - 1
        if trials_total is None or n_last == 0 or now <= self._ends[0]:
            return by_clock
        # A configuration may take several trials: as many as those did that are not under way.
        n_settled = n_begun - n_running
        trials_each = max(n_ended / n_settled, 1.0) if n_settled > 0 else 1.0
        n_left = max(trials_total * trials_each - n_ended, n_running)
        by_trials = n_left * (now - self._ends[0]) / n_last
        return by_trials if by_clock is None else min(by_clock, by_trials)
