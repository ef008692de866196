"""The result of a study so far (best trials, final model, warnings) as one typed document.

Cheap to import, because every command that shows a study needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Self

from prefect_tune.flows.study.plan import documents_of
from prefect_tune.flows.wording.text import EqualRows
from prefect_tune.optimizers.documents import from_document, to_document
from prefect_tune.optimizers.trials.objective import PortableSeconds
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.notices import Notice
from prefect_tune.tasks.objective.metric import Usefulness


@dataclass(frozen=True, slots=True)
class WeightedTrial:
    """A trial in the final model, and its weight."""

    trial: int
    weight: float


@dataclass(frozen=True, slots=True)
class Recheck:
    """A finalist with its losses on two splits; `recheck_loss` is None if the second failed."""

    trial: int
    loss: float
    recheck_loss: float | None = None

    @property
    def mean(self) -> float:
        """Mean of both losses; infinite after a failure."""
        return inf if self.recheck_loss is None else (self.loss + self.recheck_loss) / 2


def best_recheck(rechecks: Sequence[Recheck]) -> Recheck:
    """Return the finalist with the lowest mean loss, or the first if its re-evaluation failed.

    A failed re-evaluation, for example a timeout, does not count against the best trial.
    """
    first = rechecks[0]
    return first if first.recheck_loss is None else min(rechecks, key=lambda each: each.mean)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """An ensemble, or a single trial that was preferred to an ensemble.

    Attributes:
        kind: `single`, `greedy`, `agnostic`, or `method` if the method chose the weights.
        losses: Mean loss over the folds; for greedy selection, one loss per size from 1.
        nested: Loss of each kind of ensemble on rows not used to build it.
    """

    kind: str
    members: tuple[WeightedTrial, ...]
    losses: tuple[float, ...] = ()
    nested: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_several(self) -> bool:
        """Whether the ensemble has several members."""
        return len(self.members) > 1

    @property
    def heaviest(self) -> list[WeightedTrial]:
        """Members in the order of decreasing weight."""
        return sorted(self.members, key=lambda member: (-member.weight, member.trial))


@dataclass(frozen=True, slots=True)
class Replaced:
    """Numbers of trials that were chosen for the model but then replaced, and the reason."""

    trials: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck(Usefulness):
    """Result of comparing the final model with a constant prediction.

    Attributes:
        rows: `test`, or `held-out` without test rows.
        is_useless: Whether neither test rows nor held-out rows show that the model is better.
        rare_class: Class with less than a tenth of the training rows, if there is one.
    """

    rows: str
    is_useless: bool
    rare_class: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The final model of a study and its losses on the test rows.

    Attributes:
        members: Trials of the model; empty if the study has no model.
        ensemble: Choice of an ensemble, if there was one.
        model_of_folds: Whether the model averages fold models, because time was too short to refit.
        refit_seconds: Duration of the fit.
        instead_of: Trials chosen first, if they could not become the model.
        limits: Seconds and bytes that a refit was allowed to take.
        is_scored: Whether scores on the test rows are final.
        test_loss: Loss of the model on the test rows.
        test_loss_undefined: Reason why the test loss is undefined; empty if it is defined.
        equal_rows: Test rows that equal training rows, and the loss without them.
        single_best_test_loss: Test loss of the best trial alone.
        single_best_test_loss_undefined: Reason why the best trial's test loss is undefined.
        usefulness: Comparison of the model with a constant prediction, if made.
    """

    members: tuple[WeightedTrial, ...] = ()
    ensemble: Ensemble | None = None
    model_of_folds: bool = False
    refit_seconds: float | None = None
    instead_of: Replaced | None = None
    limits: tuple[float, int | None] | None = None
    is_scored: bool = False
    test_loss: float | None = None
    test_loss_undefined: str | None = None
    equal_rows: EqualRows | None = None
    single_best_test_loss: float | None = None
    single_best_test_loss_undefined: str | None = None
    usefulness: ModelCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """The result of a study so far, as stored in the ledger.

    Attributes:
        best_trial: Incumbent, as chosen by the process that runs the study.
        nearest_trial: Trial nearest to the constraints, if there is no incumbent.
        rechecks: All trials that were evaluated on a second split.
        finalists: Rechecks of the latest finalists, best first.
        no_model: Reason why the last run ended without a model.
        decisions: Decisions of the method.
        algorithm_seconds: Measured seconds by algorithm, for later studies.
        versions: Package versions of the last session.
        notices: Warnings of all sessions.
        notes: Notes of the first session, on how the data was read and on decisions.
    """

    best_trial: int | None = None
    nearest_trial: int | None = None
    rechecks: tuple[Recheck, ...] = ()
    finalists: tuple[Recheck, ...] = ()
    model: ModelFacts = field(default_factory=ModelFacts)
    no_model: str | None = None
    decisions: Mapping[str, Any] = field(default_factory=dict)
    algorithm_seconds: tuple[PortableSeconds, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return to_document(self)

    @classmethod
    def from_stored(cls, stored: StoredStudy) -> Self:
        """Return the facts of a study in the ledger; raise `DatabaseDamaged` if damaged."""
        with documents_of(stored.name):
            return from_document(cls, stored.result)
