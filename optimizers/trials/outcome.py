"""Outcomes of trials: an evaluation or a failure, with the run time of each step.

The module is cheap to import, because every command that shows a study needs it.
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
        """Whether the trial has ended and its outcome can be told to the optimizer."""
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
        step: Name of the step.
        fold: Number of the fold.
        seconds: Time to compute the result; for a hit, the original computing time.
        load_seconds: Time to read the step's input or its cached result.
        hit: Whether the result came from the cache.
        key: Key of the result.
        held_out_seconds: Part of `seconds` spent on held-out rows; 0 if not measured.
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
    """A fit on few rows, used to predict the run time of a trial before the trial starts.

    Attributes:
        rows: Number of training rows in the pilot.
        held_out_rows: Number of held-out rows in the pilot.
        steps: Cost of each step of the pilot.
        seconds: Time within which the trial is predicted to end.
        limit_seconds: Time that the trial may take.
        own_seconds: Duration of the pilot, which is part of the trial's cost.
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

    For a model that trains in epochs, the loss is the loss at the best epoch so far.

    Attributes:
        loss: Mean of the folds' losses. Smaller is better.
        fold_losses: Loss of each fold.
        cost_seconds: Measured wall time of the trial, including reads from the cache.
        cost_uncached_seconds: Time that the trial would have taken without the cache.
        steps: Cost of each step and fold.
        constraints: Measured quantities by name.
        curve: Mean of the folds' losses after each epoch from the first; empty without epochs.
        fold_curves: Loss of each fold after each epoch.
        best_epoch: Epoch with the lowest loss in `curve`, counted from 1; None without epochs.
        resumed_from: Number of epochs trained in earlier trials or, if there is no curve, number of
            folds served from the cache.
        predictions: Key of the held-out predictions of each fold.
        trouble: Reason why `curve` ended before the requested epochs; empty if it is complete.
        risks: Loss in each bootstrap of the held-out examples; empty unless the method uses
            bootstraps and the evaluation is full.
        load_seconds: Time to load the worker's data and libraries before the trial; not part of the
            costs.
        pilot: Pilot before the trial; None without a pilot.
        rounds: Mean number of boosting rounds over the folds, found by early stopping; None without
            early stopping.
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
    rounds: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a trial has no loss.

    Attributes:
        kind: Kind of the failure: an error, an exceeded limit, or the death of the worker.
        message: One line for users.
        traceback: Traceback of the error; empty without a traceback.
        step: Name of the step that failed; None if unknown.
        fold: Number of the fold that failed; None if unknown.
        cost_seconds: Measured wall time of the trial.
        steps: Cost of each completed step and fold.
        output: Last output that the trial printed.
        load_seconds: Time to load the worker's data and libraries before the trial; not part of
            `cost_seconds`.
        pilot: Pilot before the trial; None without a pilot.
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
        # Callers of ask and tell may give the kind as a string.
        object.__setattr__(self, "kind", FailureKind(self.kind))

    @property
    def is_unstarted(self) -> bool:
        """Whether the trial was not started because its pilot predicted too long a run time."""
        return self.pilot is not None and self.pilot.is_over_limit
