"""Outcomes of trials: an evaluation, or a failure of some kind, and what each step took.

Light to import, for those who only look.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from sys import intern


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


class FailureKind(StrEnum):
    """How a trial failed: by an error, at one of its limits, or with its worker's process."""

    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    CRASHED = "crashed"

    @property
    def grows_with_rows(self) -> bool:
        """Whether more rows only make it worse: the trial took too long or too much memory."""
        return self in (FailureKind.TIMEOUT, FailureKind.MEMORY)

    @property
    def is_hopeless(self) -> bool:
        """Whether more rows do not cure it; an error may be for want of rows."""
        return self != FailureKind.ERROR


@dataclass(frozen=True, slots=True)
class StepCost:
    """The cost of one step of one fold.

    Attributes:
        step: Name of the step.
        fold: Number of the fold.
        seconds: Time to make what it made; of a hit, the time that making it once took.
        load_seconds: Time to read what it needed or served.
        hit: Whether it was served from the cache.
        key: Prefix key of what it made.
        held_out_seconds: Share of `seconds` that the held-out rows took; 0 if not measured.
    """

    step: str
    fold: int
    seconds: float
    load_seconds: float
    hit: bool
    key: str
    held_out_seconds: float = 0.0

    def __post_init__(self) -> None:
        # Names and keys of many trials are the same, and kept once.
        object.__setattr__(self, "step", intern(self.step))
        object.__setattr__(self, "key", intern(self.key))


@dataclass(frozen=True, slots=True)
class Pilot:
    """A fit on few rows that shows what a trial will take, before it starts.

    Attributes:
        rows: Training rows.
        held_out_rows: Held-out rows.
        steps: Per step, what it took.
        seconds: Predicted seconds of the trial, within which it is likely to end.
        limit_seconds: Seconds that the trial may take.
        own_seconds: Seconds that the pilot took, which are part of the trial's cost.
    """

    rows: int
    held_out_rows: int
    steps: tuple[StepCost, ...]
    seconds: float
    limit_seconds: float
    own_seconds: float = 0.0

    @property
    def is_over_limit(self) -> bool:
        """Whether the trial was not started, as it would take too long."""
        return self.seconds > self.limit_seconds


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome of a query that ran to its end.

    Of an iterative model that was trained in epochs, the best epoch so far counts.

    Attributes:
        loss: Mean of the folds' losses; smaller is better.
        fold_losses: One loss per fold.
        cost_seconds: Wall time of this stretch as measured, hits of the cache included.
        cost_uncached_seconds: What it would have taken with nothing cached.
        load_seconds: Seconds that the worker took before, to load the data and the libraries; no
            part of the costs.
        steps: Per step and fold, what it took.
        constraints: Measured quantities by name.
        curve: Mean of the folds' losses after each epoch from the first; empty without epochs.
        fold_curves: Per fold, the loss after each epoch.
        best_epoch: The epoch, from 1, of the least loss in `curve`; None without epochs.
        resumed_from: With a curve, the epochs that were trained in earlier stretches; without one,
            the folds that were served.
        trouble: Why `curve` ended before the epochs that were asked for; empty if it did not.
        predictions: Key of the held-out predictions, per fold.
        risks: Loss in each bootstrap of the held-out examples, where the method asks for some and
            the query is full.
        pilot: What a fit on few rows showed before the trial started; None without one.
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
    """Why a trial has no loss.

    Attributes:
        kind: An error, the trial limit that it exceeded, or the death of its worker.
        message: One line for people.
        traceback: Where it happened; empty when the worker died.
        step: Name of the step that failed, if known.
        fold: Number of the fold that failed, if known.
        cost_seconds: Wall time spent until then.
        steps: Per step and fold that had ended until then, what it took.
        output: Last lines the trial printed.
        load_seconds: Seconds that the worker took to load the data and the libraries, before the
            clock of the trial started; no part of `cost_seconds`.
        pilot: What a fit on few rows showed before the trial started; None without one.
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
        # A kind may come as its plain word, as from callers of ask and tell.
        object.__setattr__(self, "kind", FailureKind(self.kind))

    @property
    def is_unstarted(self) -> bool:
        """Whether the trial was not started, as its pilot showed that it would take too long."""
        return self.pilot is not None and self.pilot.is_over_limit
