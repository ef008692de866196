"""Outcomes of trials: an evaluation or a failure, with the seconds of each step.

Cheap to import, for readers of studies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from sys import intern


class TrialState(StrEnum):
    """State of a trial."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def is_told(self) -> bool:
        """Whether the trial has ended, so that the optimizer is told."""
        return self in (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED)


class FailureKind(StrEnum):
    """Kind of a failure: an error, a limit, or the death of the worker's process."""

    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of one step of one fold.

    Attributes:
        seconds: Seconds of computing the result; for a hit, the original seconds.
        load_seconds: Seconds of reading its input or its cached result.
        hit: Whether the result came from the cache.
        held_out_seconds: Part of `seconds` for the held-out rows; 0 if not measured.
    """

    step: str
    fold: int
    seconds: float
    load_seconds: float
    hit: bool
    key: str
    held_out_seconds: float = 0.0

    def __post_init__(self) -> None:
        # Names and keys repeat in many trials, so they are interned.
        object.__setattr__(self, "step", intern(self.step))
        object.__setattr__(self, "key", intern(self.key))


@dataclass(frozen=True, slots=True)
class Pilot:
    """A fit on few rows that predicts the cost of a trial before it starts.

    Attributes:
        seconds: Predicted seconds within which the trial is likely to end.
        own_seconds: Seconds of the pilot, which are part of the trial's cost.
    """

    rows: int
    held_out_rows: int
    steps: tuple[StepCost, ...]
    seconds: float
    limit_seconds: float
    own_seconds: float = 0.0

    @property
    def is_over_limit(self) -> bool:
        """Whether the trial was not started because it would take too long."""
        return self.seconds > self.limit_seconds


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome of a query that ran to its end.

    For an iterative model trained in epochs, the best epoch so far counts.

    Attributes:
        loss: Mean of the folds' losses; smaller is better.
        fold_losses: Loss of each fold.
        cost_seconds: Measured wall time of this trial, cache hits included.
        cost_uncached_seconds: Seconds it would have taken with nothing cached.
        load_seconds: Seconds of the worker to load the data and the libraries beforehand; not part
            of the costs.
        steps: Cost of each step and fold.
        constraints: Measured quantities by name.
        curve: Mean of the folds' losses after each epoch from the first; empty without epochs.
        fold_curves: Loss of each fold after each epoch.
        best_epoch: Epoch, from 1, of the least loss in `curve`; None without epochs.
        resumed_from: With a curve, the epochs trained in earlier trials; without one, the folds
            served from the cache.
        trouble: Reason why `curve` ended before the requested epochs; empty if it did not.
        predictions: Key of the held-out predictions of each fold.
        risks: Loss in each bootstrap of the held-out examples, if the method requests bootstraps
            and the query is full.
        pilot: Result of a fit on few rows before the trial; None without one.
    """

    loss: float
    fold_losses: tuple[float, ...] = ()
    cost_seconds: float = 0.0
    cost_uncached_seconds: float = 0.0
    steps: tuple[StepCost, ...] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[float, ...] = ()
    fold_curves: tuple[tuple[float, ...], ...] = ()
    best_epoch: int | None = None
    resumed_from: int = 0
    predictions: tuple[str, ...] = ()
    trouble: str = ""
    risks: tuple[float, ...] = ()
    load_seconds: float = 0.0
    pilot: Pilot | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a trial has no loss.

    Attributes:
        kind: An error, the exceeded trial limit, or the death of the worker.
        message: Message in one line, for people.
        step, fold: Name of the step and number of the fold that failed, if known.
        load_seconds: Seconds of the worker to load the data and the libraries, before the trial's
            clock started; not part of `cost_seconds`.
    """

    kind: FailureKind
    message: str
    traceback: str = ""
    step: str | None = None
    fold: int | None = None
    cost_seconds: float = 0.0
    steps: tuple[StepCost, ...] = ()
    output: str = ""
    load_seconds: float = 0.0
    pilot: Pilot | None = None

    def __post_init__(self) -> None:
        # Callers of ask and tell may give a kind as a plain word.
        object.__setattr__(self, "kind", FailureKind(self.kind))

    @property
    def is_unstarted(self) -> bool:
        """Whether the trial was not started because its pilot predicted too many seconds."""
        return self.pilot is not None and self.pilot.is_over_limit
