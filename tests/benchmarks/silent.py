"""An observer for benchmarks, whose output is their own."""

from prefect_tune.flows.progress import Progress
from prefect_tune.optimizers import Trial

__all__ = ["Silent"]


class Silent:
    """Observer that says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""

    def tick(self, progress: Progress) -> None:
        """Nothing."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Nothing."""
