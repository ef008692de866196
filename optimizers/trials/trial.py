"""Trials: numbered queries, each with its evaluation or the reason of its failure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from sys import intern
from typing import Any, Self

from prefect_tune.optimizers.space.query import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.state import TrialState

__all__ = ["Evaluation", "Failure", "StepCost", "Trial"]


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
    """

    step: str
    fold: int
    seconds: float
    load_seconds: float
    hit: bool
    key: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome of a query that ran to its end.

    Of an iterative model that was trained in epochs, the best epoch so far counts.

    Attributes:
        loss: Mean of the folds' losses; smaller is better.
        fold_losses: One loss per fold.
        cost_seconds: Wall time of this stretch as measured, hits of the cache included.
        cost_uncached_seconds: What it would have taken with nothing cached.
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

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(
            **{
                **document,
                "fold_losses": tuple(document["fold_losses"]),
                "steps": _steps(document),
                "curve": tuple(document["curve"]),
                "fold_curves": tuple(map(tuple, document.get("fold_curves", ()))),
                "predictions": tuple(document["predictions"]),
                "risks": tuple(document.get("risks", ())),
            }
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trial has no loss.

    Attributes:
        kind: `error`; `timeout` or `memory` when it exceeded a trial limit; `crashed` when its
            worker died.
        message: One line for people.
        traceback: Where it happened; empty when the worker died.
        step: Name of the step that failed, if known.
        fold: Number of the fold that failed, if known.
        cost_seconds: Wall time spent until then.
        steps: Per step and fold that had ended until then, what it took.
    """

    kind: str
    message: str
    traceback: str = ""
    step: str | None = None
    fold: int | None = None
    cost_seconds: float = 0.0
    steps: tuple[StepCost, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote."""
        return cls(**{**document, "steps": _steps(document)})


def _steps(document: Mapping[str, Any]) -> tuple[StepCost, ...]:
    """Read steps; names and keys of many trials are the same, and kept once."""
    return tuple(
        StepCost(**{**step, "step": intern(step["step"]), "key": intern(step["key"])})
        for step in document.get("steps", ())
    )


@dataclass(frozen=True, slots=True)
class Trial:
    """A numbered query and its outcome so far.

    With a loss it is complete if its query is full, else stopped: it may be gone on with, by a
    trial of its own.

    Attributes:
        number: Position in the order of asking, from 0.
        query: What to evaluate.
        state: Where it stands.
        evaluation: The outcome, of a complete or stopped trial.
        failure: The reason, of a failed one.
        attempts: How often it was started.
        deaths: How often its worker died of itself since it was asked for or tried again.
    """

    number: int
    query: Query
    state: TrialState = TrialState.WAITING
    evaluation: Evaluation | None = None
    failure: Failure | None = None
    attempts: int = 0
    deaths: int = 0

    def __post_init__(self) -> None:
        has_ended_well = self.state in (TrialState.COMPLETE, TrialState.STOPPED)
        if has_ended_well != (self.evaluation is not None):
            raise ValueError(
                f"trial {self.number} is {self.state}, which "
                f"{'needs' if has_ended_well else 'excludes'} an evaluation"
            )
        if (self.state == TrialState.FAILED) != (self.failure is not None):
            raise ValueError(
                f"trial {self.number} is {self.state}; only a failed one has a failure"
            )
        if has_ended_well and (self.state == TrialState.COMPLETE) != self.query.is_full:
            raise ValueError(
                f"trial {self.number} is {self.state}; a full query ends complete, others stopped"
            )

    @property
    def is_told(self) -> bool:
        """Whether it has ended."""
        return self.state.is_told

    @property
    def loss(self) -> float | None:
        """The loss, if it has one."""
        return self.evaluation.loss if self.evaluation else None

    @property
    def cost_seconds(self) -> float:
        """Wall time spent on it; 0 before it has ended."""
        if self.evaluation:
            return self.evaluation.cost_seconds
        return self.failure.cost_seconds if self.failure else 0.0

    @property
    def refit_query(self) -> Query:
        """The query of its final model: all rows and folds, and the epochs that were best.

        A training that was best when it was stopped goes to the end, unless quantities were
        measured of it, which may grow with the epochs.
        """
        if self.evaluation is None:
            return Query(self.query.configuration)
        epochs, is_stopped = self.evaluation.best_epoch, self.state == TrialState.STOPPED
        rises = is_stopped and epochs == self.query.epochs and not self.evaluation.constraints
        return Query(self.query.configuration, epochs=None if rises else epochs)

    def completed(self, evaluation: Evaluation) -> Self:
        """Return the trial of a full query with its outcome."""
        return replace(self, state=TrialState.COMPLETE, evaluation=evaluation, failure=None)

    def stopped(self, evaluation: Evaluation) -> Self:
        """Return the trial of a query that is not full with its outcome."""
        return replace(self, state=TrialState.STOPPED, evaluation=evaluation, failure=None)

    def ended(self, evaluation: Evaluation) -> Self:
        """Return the trial with its outcome: complete if its query is full, else stopped."""
        return self.completed(evaluation) if self.query.is_full else self.stopped(evaluation)

    def failed(self, failure: Failure) -> Self:
        """Return the trial with the reason why it has no outcome."""
        return replace(self, state=TrialState.FAILED, evaluation=None, failure=failure)

    def started(self) -> Self:
        """Return the trial running, once more."""
        return replace(
            self,
            state=TrialState.RUNNING,
            evaluation=None,
            failure=None,
            attempts=self.attempts + 1,
        )

    def measured(self, constraints: Mapping[str, float]) -> Self:
        """Return a trial that has a loss with quantities that were measured later."""
        assert self.evaluation is not None  # noqa: S101 - the caller's duty
        both = {**self.evaluation.constraints, **constraints}
        return replace(self, evaluation=replace(self.evaluation, constraints=both))

    def waiting(self) -> Self:
        """Return the trial put back to wait for another start."""
        return replace(self, state=TrialState.WAITING, evaluation=None, failure=None)

    def died(self) -> Self:
        """Return the trial put back to wait because its worker died of itself."""
        return replace(self.waiting(), deaths=self.deaths + 1)

    def retried(self) -> Self:
        """Return a failed trial put back to wait because a user asks for it."""
        return replace(self.waiting(), deaths=0)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "number": self.number,
            "state": str(self.state),
            "query": self.query.to_json(),
            "evaluation": self.evaluation.to_json() if self.evaluation else None,
            "failure": self.failure.to_json() if self.failure else None,
            "attempts": self.attempts,
            "deaths": self.deaths,
        }

    @classmethod
    def from_json(
        cls, document: Mapping[str, Any], space: Space, query: Query | None = None
    ) -> Self:
        """Read what `to_json` wrote, checked against a space.

        Args:
            document: What it wrote.
            space: The space.
            query: The query, where it has been read already.
        """
        evaluation, failure = document["evaluation"], document["failure"]
        return cls(
            number=document["number"],
            query=query or Query.from_json(document["query"], space),
            state=TrialState(document["state"]),
            evaluation=Evaluation.from_json(evaluation) if evaluation else None,
            failure=Failure.from_json(failure) if failure else None,
            attempts=document["attempts"],
            deaths=document.get("deaths", 0),  # not in 0.1
        )
