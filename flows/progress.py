"""Following a running study: its progress, and who observes it.

The flow's parameters are plain values, so that a deployment can give them; whoever starts a flow in
its own process and wants to follow it, listens with `observed_by`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from prefect.logging import get_run_logger

from prefect_tune.flows.following.incumbent_curve import CurvePoint
from prefect_tune.flows.following.running_trial import RunningTrial
from prefect_tune.flows.units import format_seconds
from prefect_tune.optimizers.space.wording import fidelity_text
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.privacy.masking import masked

__all__ = ["LoggingObserver", "Observer", "Progress", "current_observer", "observed_by"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a study stands.

    Attributes:
        study: Its name.
        metric: Name of the metric.
        unit: Unit of the loss.
        n_trials: Trials that have ended, failed ones included.
        n_failed: Failed ones.
        n_running: Trials under way.
        trials_total: Configurations to begin in all, if that is bounded.
        seconds: Time spent, earlier runs included.
        seconds_total: Time in all, if that is bounded.
        incumbent: The best trial so far.
        cache_hits: Steps of folds that were served from the cache.
        seconds_saved: What that saved.
        n_stopped: Those with a loss that are not the whole evaluation.
        n_begun: Configurations begun.
        can_go_on: Whether a configuration may take several trials.
        running: Where each trial under way stands.
        phase: What the method is at, or the study after its search; empty where that is not known.
        seconds_left: What is left until the search ends; None where that cannot be said.
        curve: The incumbents so far that can be compared with the last one.
    """

    study: str
    metric: str
    unit: str
    n_trials: int
    n_failed: int
    n_running: int
    trials_total: int | None
    seconds: float
    seconds_total: float | None
    incumbent: Trial | None
    cache_hits: int
    seconds_saved: float
    n_stopped: int = 0
    n_begun: int = 0
    can_go_on: bool = False
    running: tuple[RunningTrial, ...] = ()
    phase: str = ""
    seconds_left: float | None = None
    curve: tuple[CurvePoint, ...] = ()


class Observer(Protocol):
    """Follows a study."""

    def note(self, text: str) -> None:
        """Take something that a user should know, once."""

    def warn(self, text: str) -> None:
        """Take a warning, in any thread; the log of the flow run has it already."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Take a trial that has ended."""

    def tick(self, progress: Progress) -> None:
        """Take the progress; called about twice a second."""


class LoggingObserver:
    """Writes to the log of the flow run."""

    def note(self, text: str) -> None:
        """Write one line."""
        get_run_logger().info(masked(text))

    def warn(self, text: str) -> None:
        """Write nothing: the log has it."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Write one line per trial."""
        if trial.failure is not None:
            get_run_logger().warning(f"trial {trial.number} failed: {trial.failure.message}")
        elif trial.evaluation is not None:
            get_run_logger().info(
                f"trial {trial.number}{_of(trial)}: {progress.metric} {trial.evaluation.loss:.4g} "
                f"in {format_seconds(trial.evaluation.cost_seconds)} ({_best(progress)})"
            )

    def tick(self, progress: Progress) -> None:
        """Write nothing: a log has no use for it."""


def _best(progress: Progress) -> str:
    """Return what leads, or why nothing does."""
    if progress.incumbent is not None:
        return f"best {progress.incumbent.loss:.4g}{_of(progress.incumbent)}"
    is_any_whole = progress.n_trials > progress.n_failed + progress.n_stopped
    return f"none {'meets the constraints' if is_any_whole else 'has run in full'} yet"


def _of(trial: Trial) -> str:
    """Return of what a trial is, in brackets; empty if of all."""
    fidelity = fidelity_text(trial.query.to_json())
    return f" ({fidelity})" if fidelity else ""


_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let an observer follow the flows that are called in the body."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def current_observer() -> Observer:
    """Return whoever observes; by default the log of the flow run."""
    return _OBSERVER.get() or LoggingObserver()
