"""Trials as the ledger keeps them, read without their space.

Whoever only looks at a study needs neither its space nor the libraries of its methods. The
incumbent found here is the one that `History` finds among the same trials.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf
from typing import Any

import orjson

from prefect_tune.optimizers.converter import from_document
from prefect_tune.optimizers.trials.objective import Constraint, violation
from prefect_tune.optimizers.trials.outcome import Evaluation, Failure, TrialState
from prefect_tune.storage.database import as_written


def documents_of(study: str) -> AbstractContextManager[None]:
    """Read documents of a study in the body, which fails only where they are damaged.

    Raises:
        DatabaseDamaged: If it fails.
    """
    remedy = f", or remove the study with `prefect-tune study rm {study}`"
    return as_written(f"study {study}", remedy)


@dataclass(frozen=True, slots=True)
class TrialDocument:
    """A trial as a JSON document of the ledger.

    Attributes:
        document: What `Trial.to_json` made.
    """

    document: Mapping[str, Any]

    def checked(self) -> Mapping[str, Any]:
        """Return the document, which has all that people are shown of a trial."""
        evaluation, failure = self.document["evaluation"], self.document["failure"]
        if evaluation is not None:
            from_document(Evaluation, evaluation)
        if failure is not None:
            from_document(Failure, failure)
        dict(self.configuration, number=self.number, state=self.state)
        return self.document

    @property
    def number(self) -> int:
        """Position in the order of asking."""
        return int(self.document["number"])

    @property
    def state(self) -> TrialState:
        """Where it stands."""
        return TrialState(self.document["state"])

    @property
    def loss(self) -> float:
        """The loss of a trial that has an evaluation."""
        return float(self.document["evaluation"]["loss"])

    @property
    def configuration(self) -> Mapping[str, Any]:
        """Algorithm and hyperparameters by step."""
        return self.document["query"]["configuration"]

    @property
    def configuration_text(self) -> bytes:
        """The configuration as text, the same for all of its stretches."""
        return orjson.dumps(self.configuration, option=orjson.OPT_SORT_KEYS)

    @property
    def is_full(self) -> bool:
        """Whether it has the loss of a full query: all others with a loss are stopped."""
        return self.state == TrialState.COMPLETE

    @property
    def quantities(self) -> Mapping[str, float]:
        """Quantities measured besides the loss, by name."""
        return (self.document["evaluation"] or {}).get("constraints", {})

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The cost of each step of each fold."""
        return (self.document["evaluation"] or {}).get("steps", ())

    @property
    def all_steps(self) -> Sequence[Mapping[str, Any]]:
        """The cost of each step of each fold, of a failed trial of those that had ended."""
        return (*self.steps, *(self.document["failure"] or {}).get("steps", ()))

    @property
    def cost_seconds(self) -> float:
        """Wall time spent on it; 0 before it has ended."""
        outcome = self.document["evaluation"] or self.document["failure"] or {}
        return float(outcome.get("cost_seconds", 0.0))

    @property
    def load_seconds(self) -> float:
        """Seconds of loading data and libraries before its clock started."""
        outcome = self.document["evaluation"] or self.document["failure"] or {}
        return float(outcome.get("load_seconds", 0.0))  # not in 0.1


class Standing:
    """The best of some trials, which are added one by one.

    Args:
        constraints: Met by an incumbent.

    Attributes:
        incumbent: The best full trial that meets all constraints.
    """

    def __init__(self, constraints: Sequence[Constraint] = ()) -> None:
        self._constraints = constraints
        self.incumbent: TrialDocument | None = None
        self._nearest: TrialDocument | None = None
        self._best = (inf, inf)
        self._least = (True, inf, inf, inf)

    @property
    def nearest_infeasible(self) -> TrialDocument | None:
        """The trial nearest to the constraints if no full one meets them all; a full one if any."""
        return self._nearest if self.incumbent is None else None

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        if trial.state not in {TrialState.COMPLETE, TrialState.STOPPED}:
            return
        excess = violation(self._constraints, trial.quantities)
        rank = (trial.loss, float(trial.number))
        if excess <= 0:
            if trial.is_full and rank < self._best:
                self.incumbent, self._best = trial, rank
        elif (not trial.is_full, excess, *rank) < self._least:
            self._nearest, self._least = trial, (not trial.is_full, excess, *rank)
