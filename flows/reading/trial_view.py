"""A trial, read from its JSON document without the space or the libraries of methods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import orjson

from prefect_tune.optimizers.documents import from_document
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, TrialState

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial as recorded in the ledger or in a running study."""

    document: Mapping[str, Any]

    def checked(self) -> Self:
        """Return the trial; raise `ValueError` if a displayed part is missing or damaged."""
        self.evaluation, self.failure  # noqa: B018 - reads both
        dict(self.configuration, number=self.number, state=self.state)
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the trial's document, with the full query, the state and `is_partial`."""
        query = {**self.query, "folds": self.query.get("folds")}
        ours = {"query": query, "state": str(self.state), "is_partial": self.is_partial}
        return {**self.document, **ours}

    @property
    def number(self) -> int:
        """Number of the trial, in the order of proposals."""
        return int(self.document["number"])

    @property
    def state(self) -> TrialState:
        """State of the trial. A partial trial with a loss also counts as complete."""
        return TrialState.COMPLETE if self.is_partial else TrialState(self.document["state"])

    @property
    def attempts(self) -> int:
        """Number of times the trial was started."""
        return int(self.document["attempts"])

    @property
    def query(self) -> Mapping[str, Any]:
        """Configuration and fidelity of the trial, as JSON values."""
        return self.document["query"]

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Algorithm and hyperparameters of each step."""
        return self.query["configuration"]

    @property
    def configuration_text(self) -> bytes:
        """Configuration as JSON with sorted keys, so that equal configurations give equal bytes."""
        return orjson.dumps(self.configuration, option=orjson.OPT_SORT_KEYS)

    @property
    def path(self) -> tuple[str, ...]:
        """Path of the configuration: the algorithm of each step."""
        return tuple(choice["algorithm"] for choice in self.configuration.values())

    @property
    def is_full(self) -> bool:
        """Whether the loss is from a full evaluation."""
        return self.document["state"] == TrialState.COMPLETE

    @property
    def is_partial(self) -> bool:
        """Whether the loss is from an evaluation below full fidelity."""
        return self.document["state"] == TrialState.STOPPED

    @property
    def has_loss(self) -> bool:
        """Whether the trial ended with an evaluation."""
        return self.document["evaluation"] is not None

    @property
    def evaluation(self) -> Evaluation | None:
        """Evaluation of the trial; None if the trial has none. Reading many evaluations is slow."""
        found = self.document["evaluation"]
        return None if found is None else from_document(Evaluation, found)

    @property
    def failure(self) -> Failure | None:
        """Failure of the trial; None if the trial has not failed."""
        found = self.document["failure"]
        return None if found is None else from_document(Failure, found)

    @property
    def loss(self) -> float:
        """Loss of the trial, which must have an evaluation."""
        return float(self.document["evaluation"]["loss"])

    @property
    def fold_losses(self) -> Sequence[float]:
        """Loss of each fold; empty if the trial has no evaluation."""
        return self._evaluated.get("fold_losses", ())

    @property
    def curve(self) -> Sequence[float]:
        """Loss after each epoch; empty if the model was not trained in epochs."""
        return self._evaluated.get("curve") or ()

    @property
    def trouble(self) -> str:
        """Reason why training ended before the requested epochs; empty if training finished."""
        return self._evaluated.get("trouble") or ""

    @property
    def quantities(self) -> Mapping[str, float]:
        """Measured quantities other than the loss, by name."""
        return self._evaluated.get("constraints", _NOTHING)

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """Cost of each step and fold in the evaluation, as JSON values of `StepCost`."""
        return self._evaluated.get("steps", ())

    @property
    def all_steps(self) -> Sequence[Mapping[str, Any]]:
        """Cost of each step and fold, including steps that a failed trial had finished."""
        return (*self.steps, *(self.document["failure"] or _NOTHING).get("steps", ()))

    @property
    def cost_seconds(self) -> float:
        """Wall time of the trial in seconds; 0 before the trial ends."""
        return float(self._outcome.get("cost_seconds", 0.0))

    @property
    def cost_uncached_seconds(self) -> float:
        """Seconds that the evaluation would have taken without the cache."""
        return float(self._evaluated.get("cost_uncached_seconds", 0.0))

    @property
    def load_seconds(self) -> float:
        """Seconds spent on loading data and libraries, which do not count as the trial's time."""
        return float(self._outcome.get("load_seconds", 0.0))  # missing in version 0.1

    @property
    def _evaluated(self) -> Mapping[str, Any]:
        return self.document["evaluation"] or _NOTHING

    @property
    def _outcome(self) -> Mapping[str, Any]:
        return self.document["evaluation"] or self.document["failure"] or _NOTHING
