"""Progress of a running study: running trials, best losses over time, time left, and observers.

A flow's parameters are plain values, so that a deployment can pass them. A caller in the same
process therefore follows a flow through `observed_by`.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from prefect.logging import get_run_logger

from prefect_tune.flows.text import (
    LossWords,
    Whole,
    bracketed,
    counts_text,
    failure_text,
    format_seconds,
    saved_text,
)
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """Where a trial under way stands.

    Attributes:
        number: Its number.
        path: Its algorithms, in the order of the steps.
        seconds: Seconds since its start, without those in which it waited for others.
        limit_seconds: Seconds that it may take.
        step: Name of the step that it is at; empty before that is known.
        fold: Number of the fold that it is at, as failures have it; None before that is known.
    """

    number: int
    path: tuple[str, ...]
    seconds: float
    limit_seconds: float
    step: str = ""
    fold: int | None = None


_MOST_POINTS = 200


class CurvePoint(NamedTuple):
    """A new incumbent.

    Attributes:
        seconds: When it came, by the time of the study.
        loss: Its loss.
    """

    seconds: float
    loss: float


class IncumbentCurve:
    """Incumbents so far; beyond 200, every second one between first and last is dropped."""

    def __init__(self) -> None:
        self._points: list[tuple[str, CurvePoint]] = []

    def add(self, seconds: float, loss: float, fidelity: str = "") -> None:
        """Add the incumbent, unless its loss and fidelity equal those of the last.

        Args:
            seconds: The time of the study.
            loss: Loss of the incumbent.
            fidelity: Part of the evaluation that the loss is of, in words; empty for all of it.
        """
        if self._points and (fidelity, loss) == (self._points[-1][0], self._points[-1][1].loss):
            return
        self._points.append((fidelity, CurvePoint(seconds, loss)))
        if len(self._points) > _MOST_POINTS:
            del self._points[1:-1:2]

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """The incumbents with the same fidelity as the last one."""
        last = self._points[-1][0] if self._points else ""
        return tuple(point for fidelity, point in self._points if fidelity == last)


_LAST = 20
"""Latest trials that the rate is estimated from; older ones say little."""


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
        # Trials per configuration, estimated from the configurations that are not running.
        n_settled = n_begun - n_running
        trials_each = max(n_ended / n_settled, 1.0) if n_settled > 0 else 1.0
        n_left = max(trials_total * trials_each - n_ended, n_running)
        by_trials = n_left * (now - self._ends[0]) / n_last
        return by_trials if by_clock is None else min(by_clock, by_trials)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a study stands.

    Attributes:
        study: Its name.
        metric: Name of the metric.
        n_trials: Trials that have ended, failed ones included.
        n_failed: Failed ones.
        n_running: Trials under way.
        trials_total: Configurations to begin in all, if that is bounded.
        seconds: Time spent, earlier runs included.
        seconds_total: Time in all, if that is bounded.
        incumbent: The best trial so far.
        cache_hits: Steps of folds that were served from the cache.
        seconds_saved: Seconds that the cache saved.
        whole: The whole evaluation of a configuration.
        n_stopped: Trials that ended with a loss from a part of the evaluation.
        n_begun: Configurations begun.
        can_go_on: Whether a configuration may take several trials.
        running: Where each trial under way stands.
        phase: What the method is at, or the study after its search; empty where that is not known.
        seconds_left: What is left until the search ends; None where that cannot be said.
        curve: The incumbents so far that can be compared with the last one.
    """

    study: str
    metric: str
    n_trials: int
    n_failed: int
    n_running: int
    trials_total: int | None
    seconds: float
    seconds_total: float | None
    incumbent: Trial | None
    cache_hits: int
    seconds_saved: float
    whole: Whole
    n_stopped: int = 0
    n_begun: int = 0
    can_go_on: bool = False
    running: tuple[RunningTrial, ...] = ()
    phase: str = ""
    seconds_left: float | None = None
    curve: tuple[CurvePoint, ...] = ()

    @property
    def losses(self) -> LossWords:
        """The words for its losses."""
        return LossWords(self.metric)

    @property
    def counts(self) -> str:
        """How many trials have ended, and how."""
        return counts_text(self.n_trials, self.n_stopped, self.n_failed, of=self._trials_bound)

    @property
    def _trials_bound(self) -> int | None:
        return None if self.can_go_on else self.trials_total

    def part(self, trial: Trial | None) -> str:
        """Return the part of the whole evaluation that a trial ran; empty for all of it."""
        return "" if trial is None else self.whole.part(trial.query.to_json())

    def best_line(self) -> str:
        """Return what leads, or why nothing does."""
        if (best := self.incumbent) is not None and best.loss is not None:
            return f"best {self.losses.named(best.loss)}{bracketed(self.part(best))}"
        is_any_whole = self.n_trials > self.n_failed + self.n_stopped
        return f"none {'meets the constraints' if is_any_whole else 'has run in full'} yet"

    def status_line(self) -> str:
        """Return where the study stands in one line."""
        parts = [] if self.incumbent is None else [self.best_line()]
        if self.can_go_on:
            of = f"/{self.trials_total}" if self.trials_total else ""
            is_one = self.n_begun == 1 and not of
            parts.append(f"{self.n_begun}{of} configuration{'s' * (not is_one)} begun")
        parts.append(self.counts)
        if self.seconds_total is not None:
            parts.append(f"{format_seconds(max(self.seconds_total - self.seconds, 0))} left")
        parts.append(f"cache {self.cache_hits} hits, {saved_text(self.seconds_saved)} saved")
        return " · ".join(parts)

    def trial_line(self, trial: Trial) -> str:
        """Return the outcome of a trial in one line."""
        path = " > ".join(trial.query.configuration.path) + bracketed(self.part(trial))
        if trial.failure is not None:
            return f"trial {trial.number:>3}  failed  {failure_text(trial.failure)}  {path}"
        cost = format_seconds(trial.cost_seconds)
        return f"trial {trial.number:>3}  {self.losses.of(trial.loss):<8} {cost:>6}  {path}"


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
        line = f"{progress.trial_line(trial)} ({progress.best_line()})"
        log = get_run_logger()
        log.info(line) if trial.failure is None else log.warning(line)

    def tick(self, progress: Progress) -> None:
        """Write nothing: a log has no use for it."""


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
