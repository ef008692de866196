"""The trials that the final model of a study is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefect_tune.flows.study.documents import TrialDocument


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """A trial in the final model.

    Attributes:
        trial: Its number.
        weight: Its share of the model; 1 where it is alone.
        loss: Its own loss; None where the ledger has none.
        configuration: Algorithm and hyperparameters by step.
    """

    trial: int
    weight: float
    loss: float | None
    configuration: Mapping[str, Any]


class MembersPass:
    """Takes trials, and keeps the members.

    Args:
        members: Trials and weights, as the study's result has them.
    """

    def __init__(self, members: Sequence[Mapping[str, Any]]) -> None:
        self._weights = {member["trial"]: float(member["weight"]) for member in members}
        self._found: list[EnsembleMember] = []

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        if (weight := self._weights.get(trial.number)) is not None:
            loss = trial.loss if trial.document["evaluation"] else None
            self._found.append(EnsembleMember(trial.number, weight, loss, trial.configuration))

    def found(self) -> list[EnsembleMember]:
        """Return the members, the heaviest first."""
        return sorted(self._found, key=lambda member: (-member.weight, member.trial))
