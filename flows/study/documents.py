"""Trials as the ledger keeps them, read without their space.

Whoever only looks at a study needs neither its space nor the libraries of its methods. The
incumbent found here is the one that `History` finds among the same trials.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefect_tune.optimizers.trials.constraint import Constraint, violation
from prefect_tune.optimizers.trials.state import TrialState

__all__ = ["Standing", "TrialDocument", "standing_of"]


@dataclass(frozen=True, slots=True)
class TrialDocument:
    """A trial as a JSON document of the ledger.

    Attributes:
        document: What `Trial.to_json` made.
    """

    document: Mapping[str, Any]

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
        configuration: Mapping[str, Any] = self.document["query"]["configuration"]
        return configuration

    @property
    def configuration_text(self) -> str:
        """The configuration as text, the same for all of its stretches."""
        return json.dumps(self.configuration, sort_keys=True)

    @property
    def is_full(self) -> bool:
        """Whether it has the loss of a full query: all others with a loss are stopped."""
        return self.state == TrialState.COMPLETE

    @property
    def quantities(self) -> Mapping[str, float]:
        """Quantities measured besides the loss, by name."""
        quantities: Mapping[str, float] = (self.document["evaluation"] or {}).get("constraints", {})
        return quantities

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        """The cost of each step of each fold."""
        steps: Sequence[Mapping[str, Any]] = (self.document["evaluation"] or {}).get("steps", ())
        return steps

    @property
    def cost_seconds(self) -> float:
        """Wall time spent on it; 0 before it has ended."""
        outcome = self.document["evaluation"] or self.document["failure"] or {}
        return float(outcome.get("cost_seconds", 0.0))


@dataclass(frozen=True, slots=True)
class Standing:
    """The best of some trials.

    Attributes:
        incumbent: The best full trial that meets all constraints.
        nearest_infeasible: Where none does, the full trial that is nearest to it.
    """

    incumbent: TrialDocument | None
    nearest_infeasible: TrialDocument | None


def standing_of(trials: Iterable[TrialDocument], constraints: Sequence[Constraint]) -> Standing:
    """Return the incumbent of trials, or what comes nearest to one."""
    full = [(violation(constraints, t.quantities), t) for t in trials if t.is_full]
    feasible = [t for excess, t in full if excess <= 0]
    if feasible:
        return Standing(min(feasible, key=lambda t: (t.loss, t.number)), None)
    nearest = min(full, key=lambda pair: (pair[0], pair[1].loss, pair[1].number), default=None)
    return Standing(None, nearest[1] if nearest else None)
