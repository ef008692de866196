"""The contract of all methods: ask for a query, tell what came of it, replay to resume.

An optimizer's state is a fold over its events. What an ask draws depends on the seed and the number
of asks before it, so a process that replays the events continues exactly where another stopped.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from math import isfinite
from typing import Any, ClassVar, Self

import numpy as np

from prefect_tune.optimizers.space.configuration import Query
from prefect_tune.optimizers.space.naming import UnknownName
from prefect_tune.optimizers.space.space import Space
from prefect_tune.optimizers.trials.history import History
from prefect_tune.optimizers.trials.objective import Objective
from prefect_tune.optimizers.trials.trial import Trial

__all__ = [
    "Asked",
    "Budget",
    "Event",
    "Measured",
    "NoOptions",
    "Optimizer",
    "Retried",
    "SpaceExhausted",
    "Told",
    "replay",
]


class SpaceExhausted(Exception):  # noqa: N818 - not an error: the search has seen everything
    """Every configuration of the space has been asked for."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a study may still spend when an optimizer is asked.

    Attributes:
        trials_spent: Trials told so far.
        trials_left: Trials that may still be asked for; None when not limited.
        seconds_spent: Worker-seconds spent so far.
        seconds_left: Worker-seconds that may still be spent; None when not limited.
        ask_seconds: Seconds that the optimizer's own asks have taken so far.
    """

    trials_spent: int = 0
    trials_left: int | None = None
    seconds_spent: float = 0.0
    seconds_left: float | None = None
    ask_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Trial `number` was asked for; `memo` is what the method wants back on replay."""

    number: int
    query: Query
    budget: Budget
    memo: Mapping[str, Any] | None = None

    kind: ClassVar[str] = "ask"

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {
            "number": self.number,
            "query": self.query.to_json(),
            "budget": asdict(self.budget),
            "memo": self.memo,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """The inverse of `to_json`, its query checked against a space."""
        query = Query.from_json(document["query"], space)
        return cls(document["number"], query, Budget(**document["budget"]), document["memo"])


@dataclass(frozen=True, slots=True)
class Told:
    """A trial has ended."""

    trial: Trial

    kind: ClassVar[str] = "tell"

    def to_json(self) -> dict[str, Any]:
        """The trial as JSON values."""
        return self.trial.to_json()

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:
        """The inverse of `to_json`, its query checked against a space."""
        return cls(Trial.from_json(document, space))


@dataclass(frozen=True, slots=True)
class Retried:
    """A failed trial waits for another attempt."""

    number: int

    kind: ClassVar[str] = "retry"

    def to_json(self) -> dict[str, Any]:
        """The number of the trial."""
        return {"number": self.number}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:  # noqa: ARG003
        """The inverse of `to_json`."""
        return cls(document["number"])


@dataclass(frozen=True, slots=True)
class Measured:
    """Quantities of a complete trial were measured after it was told, for a limit set later."""

    number: int
    constraints: Mapping[str, float]

    kind: ClassVar[str] = "measure"

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        return {"number": self.number, "constraints": dict(self.constraints)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any], space: Space) -> Self:  # noqa: ARG003
        """The inverse of `to_json`."""
        return cls(document["number"], document["constraints"])


Event = Asked | Told | Retried | Measured


@dataclass(frozen=True)
class NoOptions:
    """Options of a method that has none."""


class Optimizer(ABC):
    """A method of search behind ask and tell; cheap to call in any order with queries pending.

    Subclasses implement `_propose`, and `_observe` and `_restore` where they keep state that the
    history does not hold.

    Args:
        space: Where to search.
        seed: Source of all randomness, together with the number of the ask.
        objective: What is minimised.
        **options: The method's own options, by the names of `Options`.

    Raises:
        UnknownName: If the method has no such option.
        TypeError, ValueError: If an option's value is not valid; raised by `Options`.
    """

    name: ClassVar[str]
    """The word after `--method`."""
    Options: ClassVar[type[Any]] = NoOptions
    """A dataclass of the method's options that checks itself."""

    def __init__(
        self, space: Space, seed: int, objective: Objective | None = None, **options: Any
    ) -> None:
        known = [f.name for f in fields(self.Options)]
        for option in options:
            if option not in known:
                raise UnknownName(f"option of method {self.name!r}:", option, known)
        self.space = space
        self.seed = seed
        self.objective = objective or Objective()
        self.options = self.Options(**options)
        self.history = History(self.objective.constraints)
        self.memo: Mapping[str, Any] | None = None
        self._n_asks = 0

    @property
    def decisions(self) -> dict[str, Any]:
        """What the method has decided so far that people may want to see, as JSON values."""
        return {}

    def ask(self, budget: Budget) -> Query:
        """The next query, which becomes trial number `n` at the n-th ask, counted from 0.

        After it, `memo` holds what `replay` must be given back, or None.

        Raises:
            SpaceExhausted: If nothing is left to ask for.
        """
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self._n_asks,))
        query = self._propose(budget, np.random.default_rng(sequence))
        self._register(query)
        return query

    def tell(self, trial: Trial) -> None:
        """Take what came of a trial; failed ones are told too.

        Raises:
            ValueError: If the trial was not asked for, has another query, has not ended, was told
                before, or has a loss that is not finite.
        """
        asked = self.history.get(trial.number)
        if asked is None:
            raise ValueError(
                f"trial {trial.number} was never asked for; asked so far: 0 to {self._n_asks - 1}"
            )
        if asked.is_told:
            raise ValueError(f"trial {trial.number} was told before; retry() it to tell it again")
        if not trial.is_told:
            raise ValueError(f"trial {trial.number} is {trial.state}; tell it when it has ended")
        if trial.query != asked.query:
            raise ValueError(f"trial {trial.number} was asked for with another query")
        if trial.loss is not None and not isfinite(trial.loss):
            raise ValueError(f"trial {trial.number} has loss {trial.loss}; tell it as failed")
        self.history.record(trial)
        self._observe(trial)

    def retry(self, number: int) -> None:
        """Count a failed trial as pending again.

        Raises:
            ValueError: If there is no failed trial of that number.
        """
        if number not in self.history or self.history[number].failure is None:
            raise ValueError(f"trial {number} has not failed, so there is nothing to retry")
        self.history.record(self.history[number].waiting())

    def measure(self, number: int, constraints: Mapping[str, float]) -> None:
        """Take quantities of a complete trial that were not measured when it was told.

        Raises:
            ValueError: If there is no complete trial of that number.
        """
        trial = self.history.get(number)
        if trial is None or trial.evaluation is None:
            raise ValueError(f"trial {number} is not complete, so that it has no quantities")
        self.history.record(trial.measured(constraints))

    def apply(self, event: Event) -> None:
        """Take one event of an earlier process, without proposing anything.

        Raises:
            ValueError: If the event cannot have happened now.
        """
        match event:
            case Asked():
                if event.number != self._n_asks:
                    raise ValueError(
                        f"the events ask for trial {event.number} where {self._n_asks} comes next; "
                        "they are not in order"
                    )
                self._restore(event.memo)
                self._register(event.query)
            case Told():
                self.tell(event.trial)
            case Retried():
                self.retry(event.number)
            case Measured():
                self.measure(event.number, event.constraints)

    def _register(self, query: Query) -> None:
        self.history.record(Trial(self._n_asks, query))
        self._n_asks += 1

    @abstractmethod
    def _propose(self, budget: Budget, rng: np.random.Generator) -> Query:
        """The next query, from the history, the memo and this ask's own generator."""

    def _observe(self, trial: Trial) -> None:  # noqa: B027 - not every method keeps something
        """Update what the method keeps besides the history."""

    def _restore(self, memo: Mapping[str, Any] | None) -> None:
        """Take back what an earlier ask handed out."""
        self.memo = memo


def replay(optimizer: Optimizer, events: Iterable[Event]) -> None:
    """Bring a new optimizer to the state it would have after these events.

    Raises:
        ValueError: If the events are not in an order in which they can have happened.
    """
    for event in events:
        optimizer.apply(event)
