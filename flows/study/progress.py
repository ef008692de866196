"""Progress of a running study, and observers that follow the progress.

Because Prefect stores flow parameters, an observer cannot be a parameter. To follow a flow, a
caller in the same process uses `observed_by`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from prefect.logging import get_run_logger

from prefect_tune.flows.wording.text import (
    LossWords,
    Whole,
    bracketed,
    counted,
    counts_text,
    failure_text,
    format_seconds,
    saved_text,
)
from prefect_tune.optimizers.trials.outcome import TrialState
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked


@dataclass(slots=True)
class StudyTotals:
    """Totals over the trials of a study.

    Attributes:
        told: Number of trials that have ended, including failed trials.
        partial: Number of trials with a loss from a partial evaluation.
        cache_hits: Number of steps served by the cache, counted per fold, including failed trials.
        seconds_saved: Time that the cache saved.
    """

    told: int = 0
    failed: int = 0
    partial: int = 0
    cost_seconds: float = 0.0
    cache_hits: int = 0
    seconds_saved: float = 0.0

    def count(self, trial: Trial, times: int = 1) -> None:
        """Add a trial to the totals or, with `times=-1`, subtract the trial."""
        self.told += times * trial.is_told
        self.failed += times * (trial.state == TrialState.FAILED)
        self.partial += times * (trial.state == TrialState.STOPPED)
        self.cost_seconds += times * trial.cost_seconds
        outcome = trial.evaluation or trial.failure
        for step in outcome.steps if outcome else ():
            if step.hit:
                self.cache_hits += times
                self.seconds_saved += times * (step.seconds - step.load_seconds)


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """Progress of a running trial.

    Attributes:
        seconds: Time since the trial started, without waits for other workers or stores.
        step: Name of the current step; empty if unknown.
        fold: Number of the current fold, from 0; None if unknown.
    """

    number: int
    path: tuple[str, ...]
    seconds: float
    limit_seconds: float
    step: str = ""
    fold: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a study.

    Attributes:
        trials_total: Maximum number of configurations; None if unbounded.
        seconds: Study time so far, including earlier sessions.
        seconds_total: Time budget of the study; None if unbounded.
        n_begun: Number of configurations started.
        phase: Current phase of the method or of the study; empty if unknown.
    """

    study: str
    metric: str
    totals: StudyTotals
    trials_total: int | None
    seconds: float
    seconds_total: float | None
    incumbent: Trial | None
    whole: Whole
    n_begun: int = 0
    running: tuple[RunningTrial, ...] = ()
    phase: str = ""

    @property
    def losses(self) -> LossWords:
        """Formatter of losses in the study's metric."""
        return LossWords(self.metric)

    @property
    def seconds_left(self) -> float | None:
        """Estimated time until the search ends, at the mean rate so far; None if unknown."""
        bounds, n_ended = list[float](), self.n_begun - len(self.running)
        if self.seconds_total is not None:
            bounds.append(max(self.seconds_total - self.seconds, 0.0))
        if self.trials_total is not None and n_ended > 0:
            bounds.append(self.seconds / n_ended * max(self.trials_total - n_ended, 0))
        return min(bounds, default=None)

    def part(self, trial: Trial | None) -> str:
        """Return the fidelity of a trial as text; empty for a full evaluation."""
        return "" if trial is None else self.whole.part(trial.query.to_json())

    def best_line(self) -> str:
        """Return the best score as a line of text, or the reason why no score exists."""
        if (best := self.incumbent) is not None and best.loss is not None:
            return f"best {self.losses.named(best.loss)}{bracketed(self.part(best))}"
        is_any_whole = self.totals.told > self.totals.failed + self.totals.partial
        return f"no trial {'meets the constraints' if is_any_whole else 'has run in full'} yet"

    def status_line(self) -> str:
        """Return the progress as a line of text."""
        totals, left = self.totals, self.seconds_total and max(self.seconds_total - self.seconds, 0)
        counts = (self.n_begun, totals.told, totals.partial, totals.failed)
        parts = [
            "" if self.incumbent is None else self.best_line(),
            counts_text(*counts, limit=self.trials_total),
            "" if left is None else f"{format_seconds(left)} left",
            f"cache {counted(totals.cache_hits, 'hit')}, {saved_text(totals.seconds_saved)} saved",
        ]
        return " · ".join(filter(None, parts))

    def trial_line(self, trial: Trial) -> str:
        """Return the outcome and the model of a trial as a short line of text."""
        model = trial.query.configuration.path[-1] + bracketed(self.part(trial))
        if trial.failure is not None:
            return f"trial {trial.number:>3}  failed  {failure_text(trial.failure)}  {model}"
        cost = format_seconds(trial.cost_seconds)
        return f"trial {trial.number:>3}  {self.losses.of(trial.loss):<8} {cost:>6}  {model}"


class Observer:
    """Follows the progress of a study. By default, the methods do nothing."""

    def note(self, text: str) -> None:
        """Receive a note that is meant for the user."""

    def warn(self, text: str) -> None:
        """Receive a warning, in any thread, that is already in the flow run's log."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Receive an ended trial."""

    def tick(self, progress: Progress) -> None:
        """Receive the progress. This method is called about twice a second."""


class LoggingObserver(Observer):
    """Observer that writes to the log of the flow run, which already has the warnings."""

    def note(self, text: str) -> None:
        """Log a note as one line."""
        get_run_logger().info(masked(text))

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Log the outcome of a trial as one line."""
        line = f"{progress.trial_line(trial)} ({progress.best_line()})"
        log = get_run_logger()
        log.info(line) if trial.failure is None else log.warning(line)


_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let an observer follow all flows that the `with` block calls."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def current_observer() -> Observer:
    """Return the current observer; by default, the observer that logs."""
    return _OBSERVER.get() or LoggingObserver()
