"""Progress of a running study, and its observers.

Flow parameters are plain values, so an observer cannot be a parameter. A caller in the same process
follows a flow through `observed_by`.
"""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from prefect.logging import get_run_logger

from prefect_tune.flows.wording.text import (
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
    """Progress of a running trial.

    Attributes:
        seconds: Seconds since the start, excluding time spent waiting for other trials.
        step: Name of the current step; empty if not known yet.
        fold: Number of the current fold, counted as in failures; None if not known yet.
    """

    number: int
    path: tuple[str, ...]
    seconds: float
    limit_seconds: float
    step: str = ""
    fold: int | None = None


class CurvePoint(NamedTuple):
    """A new incumbent, and the study time at which it was found."""

    seconds: float
    loss: float


class IncumbentCurve:
    """Incumbents so far."""

    def __init__(self) -> None:
        self._points: list[tuple[str, CurvePoint]] = []

    def add(self, seconds: float, loss: float, fidelity: str = "") -> None:
        """Add an incumbent at a study time, unless loss and fidelity equal the last incumbent's."""
        if self._points and (fidelity, loss) == (self._points[-1][0], self._points[-1][1].loss):
            return
        self._points.append((fidelity, CurvePoint(seconds, loss)))

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """Incumbents with the same fidelity as the last one."""
        last = self._points[-1][0] if self._points else ""
        return tuple(point for fidelity, point in self._points if fidelity == last)


_LAST = 20
"""Number of latest trials used to estimate the rate."""


class RemainingTime:
    """Predicts the seconds left in a search that starts at study time `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._ends = deque([seconds], maxlen=_LAST + 1)

    def ended(self, seconds: float) -> None:
        """Record that a trial has ended."""
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
        """Return the seconds from study time `now` until the first bound is met; None if unknown.

        `n_ended` and `n_running` count trials, `n_begun` and `trials_total` configurations.
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
    """Progress of a study.

    Attributes:
        n_trials: Trials that have ended, including failed ones.
        trials_total: Maximum number of configurations; None if unbounded.
        seconds: Study time, including earlier sessions.
        seconds_total: Time budget; None if unbounded.
        cache_hits: Fold steps served from the cache.
        seconds_saved: Seconds saved by the cache.
        n_stopped: Trials that ended with a loss from a partial evaluation.
        n_begun: Configurations started.
        can_go_on: Whether a configuration can take several trials.
        phase: Current phase of the method or of the study; empty if unknown.
        seconds_left: Seconds until the search ends; None if unknown.
        curve: Incumbents so far that are comparable with the last one.
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
        """Formatting of losses in the study's metric."""
        return LossWords(self.metric)

    @property
    def counts(self) -> str:
        """Numbers of trials by outcome, as text."""
        return counts_text(self.n_trials, self.n_stopped, self.n_failed, of=self._trials_bound)

    @property
    def _trials_bound(self) -> int | None:
        return None if self.can_go_on else self.trials_total

    def part(self, trial: Trial | None) -> str:
        """Return the fidelity of a trial as text; empty for a full evaluation."""
        return "" if trial is None else self.whole.part(trial.query.to_json())

    def best_line(self) -> str:
        """Return the best loss, or why there is none, in one line."""
        if (best := self.incumbent) is not None and best.loss is not None:
            return f"best {self.losses.named(best.loss)}{bracketed(self.part(best))}"
        is_any_whole = self.n_trials > self.n_failed + self.n_stopped
        return f"no trial {'meets the constraints' if is_any_whole else 'has run in full'} yet"

    def status_line(self) -> str:
        """Return the progress in one line."""
        parts = [] if self.incumbent is None else [self.best_line()]
        if self.can_go_on:
            of = f"/{self.trials_total}" if self.trials_total else ""
            is_one = self.n_begun == 1 and not of
            parts.append(f"{self.n_begun}{of} configuration{'s' * (not is_one)}")
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
        """Receive a note for the user."""

    def warn(self, text: str) -> None:
        """Receive a warning, in any thread; it is already in the log of the flow run."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Receive a trial that has ended."""

    def tick(self, progress: Progress) -> None:
        """Receive the progress; called about twice a second."""


class LoggingObserver:
    """Observer that writes to the log of the flow run."""

    def note(self, text: str) -> None:
        """Log one line."""
        get_run_logger().info(masked(text))

    def warn(self, text: str) -> None:
        """Do nothing: the log has the warning."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Log one line per trial."""
        line = f"{progress.trial_line(trial)} ({progress.best_line()})"
        log = get_run_logger()
        log.info(line) if trial.failure is None else log.warning(line)

    def tick(self, progress: Progress) -> None:
        """Do nothing: progress does not belong in a log."""


_OBSERVER: ContextVar[Observer | None] = ContextVar("observer", default=None)


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Let an observer follow the flows called in the body."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def current_observer() -> Observer:
    """Return the current observer; by default the log of the flow run."""
    return _OBSERVER.get() or LoggingObserver()
