"""Trials: numbered queries, each with an evaluation or the reason of its failure."""

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

    A trial with a loss is complete if its query is full, and stopped otherwise. A stopped
    configuration may be resumed by another trial.

    Attributes:
        number: Position in the order of asking, from 0.
        deaths: Spontaneous deaths of its worker since it was requested or retried.
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
                f"trial {self.number} is {self.state}; by its query, evaluation and failure it is "
                f"{state}"
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
        """The query of its final model: all rows and folds, and the best number of epochs.

        A training that was best when it stopped is completed, unless quantities were measured,
        which may grow with the epochs.
        """
        if self.evaluation is None:
            return Query(self.query.configuration)
        epochs, is_stopped = self.evaluation.best_epoch, self.state == TrialState.STOPPED
        rises = is_stopped and epochs == self.query.epochs and not self.evaluation.constraints
        return Query(self.query.configuration, epochs=None if rises else epochs)

    def completed(self, evaluation: Evaluation) -> Self:
        """Return the trial with its outcome: complete if its query is full, else stopped."""
        state = TrialState.COMPLETE if self.query.is_full else TrialState.STOPPED
        return replace(self, state=state, evaluation=evaluation, failure=None)

    def failed(self, failure: Failure) -> Self:
        """Return the trial with the reason of its failure."""
        return replace(self, state=TrialState.FAILED, evaluation=None, failure=failure)

    def started(self) -> Self:
        """Return the trial running, with one more attempt."""
        return replace(self.waiting(), state=TrialState.RUNNING, attempts=self.attempts + 1)

    def waiting(self) -> Self:
        """Return the trial waiting for another start."""
        return replace(self, state=TrialState.WAITING, evaluation=None, failure=None)

    def died(self) -> Self:
        """Return the trial waiting again because its worker died spontaneously."""
        return replace(self.waiting(), deaths=self.deaths + 1)

    def retried(self) -> Self:
        """Return a failed trial waiting again because a user asked for it."""
        return replace(self.waiting(), deaths=0)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return to_document(self, query=self.query.to_json())

    @classmethod
    def from_json(
        cls, document: Mapping[str, Any], space: Space, query: Query | None = None
    ) -> Self:
        """Read a document of `to_json`, checked against a space, or with a given `query`."""
        query = query or Query.from_json(document["query"], space)
        return from_document(cls, {**document, "query": query})
