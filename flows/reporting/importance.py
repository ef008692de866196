"""The importance of a study's choices, from the losses that the ledger has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import fmean
from typing import Any, overload

from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.optimizers.importance import Importance, importance_of
from prefect_tune.optimizers.space.configuration import Configuration
from prefect_tune.optimizers.space.space import Space


@dataclass(frozen=True, slots=True)
class _Known:
    """The best known loss of a configuration: that of most folds."""

    n_folds: int
    loss: float
    configuration: Mapping[str, Any]


class ImportancePass:
    """Takes trials with losses of all rows and epochs.

    A configuration that a race ended has the loss of its first folds. It counts too, or all that is
    bad would be left out; what other folds have more or less is added, as full trials say.

    Args:
        plan: Of the study.
    """

    def __init__(self, plan: StudyPlan) -> None:
        self._plan = plan
        self._known: dict[bytes, _Known] = {}
        self._beyond: dict[int, list[float]] = {}

    def add(self, trial: TrialDocument) -> None:
        """Take a trial."""
        evaluation, query = trial.document["evaluation"], trial.document["query"]
        is_of_all = query["subset"] == 1.0 and query["epochs"] is None
        if evaluation is None or not is_of_all or not isfinite(evaluation["loss"]):
            return
        folds = evaluation["fold_losses"]
        n_folds = (self._plan.options.folds or 1) if trial.is_full else int(query["folds"])
        if trial.is_full:
            for n in range(1, len(folds)):
                self._beyond.setdefault(n, []).append(trial.loss - fmean(folds[:n]))
        former = self._known.get(trial.configuration_text)
        if former is None or former.n_folds <= n_folds:
            known = _Known(n_folds, trial.loss, trial.configuration)
            self._known[trial.configuration_text] = known

    def found(self) -> Importance:
        """Return the importance, or why it cannot be had."""
        known = list(self._known.values())
        beyond = {n: fmean(more) for n, more in self._beyond.items()}
        is_whole = self._plan.options.folds or 1
        losses = [
            k.loss + (0.0 if k.n_folds >= is_whole else beyond.get(k.n_folds, 0.0)) for k in known
        ]
        problem = self._plan.problem
        try:
            space = problem.find_space()
        except Exception as error:  # a user's space may be gone, or need what is not installed
            return Importance(len(known), reason=f"the space cannot be had: {error}")
        if space.digest != problem.space_digest:
            return Importance(len(known), reason="this version knows the space otherwise")
        configurations = _Read([k.configuration for k in known], space)
        return importance_of(space, configurations, losses, self._plan.chance_loss)


class _Read(Sequence[Configuration]):
    """Configurations that are read when they are asked for: of many, few are.

    Args:
        documents: As JSON values.
        space: What they are of.
    """

    def __init__(self, documents: Sequence[Mapping[str, Any]], space: Space) -> None:
        self._documents, self._space = documents, space

    def __len__(self) -> int:
        return len(self._documents)

    @overload
    def __getitem__(self, position: int) -> Configuration: ...

    @overload
    def __getitem__(self, position: slice) -> Sequence[Configuration]: ...

    def __getitem__(self, position: int | slice) -> Configuration | Sequence[Configuration]:
        if isinstance(position, slice):
            return _Read(self._documents[position], self._space)
        return Configuration.from_json(self._documents[position], self._space)
