"""Observers of studies: an observer that remembers, and an observer that interrupts."""

from dataclasses import dataclass, field

from prefect_tune.flows.study.progress import LoggingObserver, Progress
from prefect_tune.optimizers import Trial

__all__ = ["Heard", "Interrupting"]


@dataclass
class Heard:
    """Remembers all notes, trials and ticks."""

    notes: list[str] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    ticks: list[Progress] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    warn = note

    def check(self) -> None:
        """Report no interrupt."""

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        self.trials.append(trial)

    def tick(self, progress: Progress) -> None:
        self.ticks.append(progress)


@dataclass
class Interrupting(LoggingObserver):
    """Presses Ctrl-C once this number of trials has ended."""

    n_trials: int

    def ended(self, trial: Trial, progress: Progress) -> None:
        super().ended(trial, progress)
        if progress.totals.told == self.n_trials:
            raise KeyboardInterrupt
