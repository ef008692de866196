"""The states of a trial; light to import, for those who only look."""

from enum import StrEnum

__all__ = ["TrialState"]


class TrialState(StrEnum):
    """Where a trial stands."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_told(self) -> bool:
        """Whether the trial has ended, and the optimizer is told of it."""
        return self in (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED)
