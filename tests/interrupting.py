"""Ctrl-C in the midst of a study."""

from dataclasses import dataclass

from prefect_tune.flows.progress import LoggingObserver, Progress
from prefect_tune.optimizers import Trial

__all__ = ["Interrupting"]


@dataclass
class Interrupting(LoggingObserver):
    """Presses Ctrl-C when so many trials have ended."""

    n_trials: int

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Say the trial, and interrupt if it is the one."""
        super().ended(trial, progress)
        if progress.n_trials == self.n_trials:
            raise KeyboardInterrupt
