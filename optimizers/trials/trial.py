"""Trials: numbered queries, each with an evaluation or the reason for a failure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, TrialState


@dataclass(frozen=True, slots=True)
class Trial:
    """A numbered query and its outcome so far.

    A trial with a loss is complete if its query is full, and stopped otherwise. Another trial may
    resume a stopped configuration.

    Attributes:
        number: Number of the ask that proposed the trial, counted from 0.
        query: Configuration and fidelity.
        state: State of the trial.
        evaluation: Outcome of a trial with a loss.
        failure: Outcome of a failed trial.
        attempts: Number of times that the trial was started.
        deaths: Number of worker deaths while the trial ran, since the trial was proposed or
            retried.
    """

    number: int
    query: Query
    state: TrialState = TrialState.WAITING
    evaluation: Evaluation | None = None
    failure: Failure | None = None
    attempts: int = 0
    deaths: int = 0

    def __post_init__(self) -> None:
        if self.failure is not None:
            state = TrialState.FAILED
        elif self.evaluation is not None:
            state = TrialState.COMPLETE if self.query.is_full else TrialState.STOPPED
        else:
            state = TrialState.RUNNING if self.state == TrialState.RUNNING else TrialState.WAITING
        if self.state != state or (self.evaluation and self.failure):
            raise ValueError(
                f"trial {self.number} is {self.state}, but its query, evaluation and failure imply "
                f"that it is {state}"
            )

    @property
    def is_told(self) -> bool:
        """Whether the trial has ended."""
        return self.state.is_told

    @property
    def loss(self) -> float | None:
        """The loss; None for a trial without a loss."""
        return self.evaluation.loss if self.evaluation else None

    @property
    def cost_seconds(self) -> float:
        """Wall time of the trial; 0 before the trial has ended."""
        if self.evaluation:
            return self.evaluation.cost_seconds
        return self.failure.cost_seconds if self.failure else 0.0

    @property
    def refit_query(self) -> Query:
        """The query for fitting the trial's final model: all rows, and the best epoch or rounds.

        Rounds grow with the fourth root of the rows, as the rule `rounds_of_n` of hyperparameters.
        If the last epoch was the best, training runs to the end, except under constraints, because
        measured quantities may grow with the epochs.
        """
        if self.evaluation is None:
            return Query(self.query.configuration)
        epochs, is_stopped = self.evaluation.best_epoch, self.state == TrialState.STOPPED
        rises = is_stopped and epochs == self.query.epochs and not self.evaluation.constraints
        rounds = self.evaluation.rounds and round(self.evaluation.rounds / self.query.subset**0.25)
        return Query(self.query.configuration, epochs=None if rises else epochs, rounds=rounds)

    def completed(self, evaluation: Evaluation) -> Self:
        """Return the trial with an evaluation: complete if the query is full, stopped if not."""
        state = TrialState.COMPLETE if self.query.is_full else TrialState.STOPPED
        return replace(self, state=state, evaluation=evaluation, failure=None)

    def failed(self, failure: Failure) -> Self:
        """Return the trial with a failure."""
        return replace(self, state=TrialState.FAILED, evaluation=None, failure=failure)

    def started(self) -> Self:
        """Return the trial as running, with one more attempt."""
        return replace(self.waiting(), state=TrialState.RUNNING, attempts=self.attempts + 1)

    def waiting(self) -> Self:
        """Return the trial as waiting, for another start."""
        return replace(self, state=TrialState.WAITING, evaluation=None, failure=None)

    def died(self) -> Self:
        """Return the trial as waiting, after the death of its worker."""
        return replace(self.waiting(), deaths=self.deaths + 1)

    def retried(self) -> Self:
        """Return a failed trial as waiting, after a request to retry the trial."""
        return replace(self.waiting(), deaths=0)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return to_document(self, query=self.query.to_json())

    @classmethod
    def from_json(
        cls, document: Mapping[str, Any], space: Space, query: Query | None = None
    ) -> Self:
        """Return the trial from a document of `to_json`.

        Unless `query` is given, the query is read from the document and checked against `space`.
        """
        query = query or Query.from_json(document["query"], space)
        return from_document(cls, {**document, "query": query})
