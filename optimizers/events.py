"""The events of an optimizer, and the fold over them that resumes a study."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class Asked:
    """Trial `number` was asked for; `memo` is what the method wants back on replay.

    Only the last memo of a study counts; it is kept beside the events, and not in them as in 0.1.
    """

    number: int
    query: Query
    budget: Budget
    memo: Mapping[str, Any] | None = None

    kind: ClassVar[str] = "ask"

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the memo as JSON values."""
        return {
            "number": self.number,
            "query": self.query.to_json(),
            "budget": asdict(self.budget),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Read what `to_json` wrote, checked against a space."""
        query = Query.from_json(document["query"], space)
        budget = dict(document["budget"])
        budget["last_ask_seconds"] = tuple(budget.get("last_ask_seconds", ()))
        budget.pop("fold_seconds", None)  # of earlier development versions
        return cls(document["number"], query, Budget(**budget), document.get("memo"))


@dataclass(frozen=True, slots=True)
class Told:
    """A trial has ended."""

    trial: Trial

    kind: ClassVar[str] = "tell"

    def to_json(self) -> dict[str, Any]:
        """Return the trial as JSON values."""
        return self.trial.to_json()

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """Read what `to_json` wrote, checked against a space."""
        return cls(Trial.from_json(document, space))


@dataclass(frozen=True, slots=True)
class Retried:
    """A failed trial waits for another attempt."""

    number: int

    kind: ClassVar[str] = "retry"

    def to_json(self) -> dict[str, Any]:
        """Return the number of the trial."""
        return {"number": self.number}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:  # noqa: ARG003
        """Read what `to_json` wrote."""
        return cls(document["number"])


@dataclass(frozen=True, slots=True)
class ConstraintsMeasured:
    """Quantities of a told trial were measured, for a constraint set later."""

    number: int
    constraints: Mapping[str, float]

    kind: ClassVar[str] = "measure"

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {"number": self.number, "constraints": dict(self.constraints)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:  # noqa: ARG003
        """Read what `to_json` wrote."""
        return cls(document["number"], document["constraints"])


Event = Asked | Told | Retried | ConstraintsMeasured


def replay(
    optimizer: Optimizer, events: Sequence[Event], memo: Mapping[str, Any] | None = None
) -> None:
    """Bring a new optimizer to the state it would have after these events.

    Args:
        optimizer: A new one.
        events: All events in order.
        memo: What the last ask handed out; None where the events have it themselves.

    Raises:
        ValueError: If the events are not in an order in which they can have happened.
    """
    asks = [position for position, event in enumerate(events) if isinstance(event, Asked)]
    for position, event in enumerate(events):
        match event:
            case Asked():
                own = memo if memo is not None and position == asks[-1] else event.memo
                optimizer.restore(event.number, event.query, own)
            case Told():
                optimizer.tell(event.trial)
            case Retried():
                optimizer.retry(event.number)
            case ConstraintsMeasured():
                optimizer.measure(event.number, event.constraints)
