"""The events of an optimizer, and their replay, which resumes a study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from prefect_tune.optimizers.budget import Budget
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.optimizer import Optimizer
from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.earlier import Prior
from prefect_tune.optimizers.trials.trial import Trial


@dataclass(frozen=True, slots=True)
class Asked:
    """The optimizer proposed trial `number`. A study resumes the method from the last `memo`."""

    number: int
    query: Query
    budget: Budget
    memo: Mapping[str, Any] | None = None

    kind: ClassVar[str] = "ask"


@dataclass(frozen=True, slots=True)
class Told:
    """The optimizer was told the outcome of a trial that has ended."""

    trial: Trial

    kind: ClassVar[str] = "tell"


@dataclass(frozen=True, slots=True)
class Retried:
    """A failed trial was returned to the waiting state for another attempt."""

    number: int

    kind: ClassVar[str] = "retry"


@dataclass(frozen=True, slots=True)
class PriorGiven:
    """The optimizer received observations of earlier runs, before the first ask."""

    prior: Prior

    kind: ClassVar[str] = "prior"


Event = Asked | Told | Retried | PriorGiven
_CLASSES: Mapping[str, type[Event]] = {
    event.kind: event for event in (Asked, Told, Retried, PriorGiven)
}


def event_document(event: Event) -> dict[str, Any]:
    """Return an event as JSON values.

    A `Told` event becomes its trial, and an `Asked` event omits its memo.
    """
    if isinstance(event, Told):
        return event.trial.to_json()
    if isinstance(event, PriorGiven):
        return event.prior.to_json()
    if not isinstance(event, Asked):
        return to_document(event)
    document = to_document(event, query=event.query.to_json(), memo=None)
    del document["memo"]
    return document


def event_of(kind: str, document: Mapping[str, Any], space: Space) -> Event:
    """Return the event with this kind and document.

    Raises KeyError if the kind is unknown, and ValueError if the document is malformed.
    """
    event = _CLASSES[kind]
    if event is Told:
        return Told(Trial.from_json(document, space))
    if event is PriorGiven:
        return PriorGiven(Prior.from_json(document, space))
    if event is Asked:
        query = Query.from_json(document["query"], space)
        return from_document(Asked, {**document, "query": query})
    return from_document(event, document)


def replay(
    optimizer: Optimizer, events: Sequence[Event], memo: Mapping[str, Any] | None = None
) -> None:
    """Bring a new optimizer to the state at the end of `events`.

    `memo` is the memo of the last ask; None if the events contain the memo. Raises ValueError if
    the order of the events is impossible.
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
            case PriorGiven():
                optimizer.begin_after(event.prior)
