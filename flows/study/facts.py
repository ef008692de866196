"""The result of a study so far (best trials, final model, warnings) as a typed document.

The module is cheap to import, because every command that shows a study needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Self

from prefect_tune.flows.study.plan import documents_of
from prefect_tune.flows.wording.text import EqualRows
from prefect_tune.optimizers.documents import from_document
from prefect_tune.optimizers.trials.objective import PortableSeconds
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.storage.notices import Notice
from prefect_tune.tasks.objective.metric import Usefulness


@dataclass(frozen=True, slots=True)
class WeightedTrial:
    """A trial that is a member of the final model, and the trial's weight."""

    trial: int
    weight: float


@dataclass(frozen=True, slots=True)
class Recheck:
    """A finalist with its losses on two splits; `recheck_loss` is None after a failure."""

    trial: int
    loss: float
    recheck_loss: float | None = None

    @property
    def mean(self) -> float:
        """Mean of the losses on both splits; infinite if the re-evaluation failed."""
        return inf if self.recheck_loss is None else (self.loss + self.recheck_loss) / 2


def best_recheck(rechecks: Sequence[Recheck]) -> Recheck:
    """Return the finalist with the best mean loss; the first finalist if its re-evaluation failed.

    If the re-evaluation of the best trial failed, for example by a timeout, the best trial stays
    the choice.
    """
    first = rechecks[0]
    return first if first.recheck_loss is None else min(rechecks, key=lambda each: each.mean)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """An ensemble, or the single trial that was preferred to an ensemble.

    Attributes:
        kind: Kind of ensemble: `single`, `greedy`, `agnostic`, or `method` if the method chose the
            weights.
        losses: Mean loss of the ensemble over the folds; for greedy selection, one loss for each
            size from 1.
        nested: Loss of each kind of ensemble on rows that were not used to build the ensemble.
    """

    kind: str
    members: tuple[WeightedTrial, ...]
    losses: tuple[float, ...] = ()
    nested: Mapping[str, float] = field(default_factory=dict)

    @property
    def has_several(self) -> bool:
        """Whether the ensemble has several members."""
        return len(self.members) > 1


@dataclass(frozen=True, slots=True)
class Replaced:
    """Trials that were chosen for the model but later replaced, and the reason."""

    trials: tuple[int, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck(Usefulness):
    """Result of comparing the final model with a constant prediction.

    Attributes:
        rows: Rows that were compared: `test`, or `held-out` if there are no test rows.
        is_useless: Whether neither test rows nor held-out rows show that the model beats a constant
            prediction.
        rare_class: Class with less than a tenth of the training rows, if any.
    """

    rows: str
    is_useless: bool
    rare_class: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The final model of a study and its losses on the test rows.

    Attributes:
        members: Trials of the model; empty if the study has no model.
        ensemble: Ensemble that was chosen, if any.
        model_of_folds: Whether the model averages the fold models, because time was too short for a
            refit.
        refit_seconds: Duration of fitting the final model.
        instead_of: Trials that were chosen first but could not become the model, if any.
        limits: Time limit and memory limit of each refit.
        is_scored: Whether the scores on the test rows are final.
        test_loss: Loss of the model on the test rows.
        test_loss_undefined: Reason why the test loss is undefined; None if defined.
        equal_rows: Test rows that are equal to training rows, and the test loss without these rows.
        single_best_test_loss: Loss of the best single trial on the test rows.
        single_best_test_loss_undefined: Reason why the test loss of the best single trial is
            undefined.
        usefulness: Comparison of the model with a constant prediction, if available.
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
        best_trial: The incumbent, chosen by the process that runs the study.
        nearest_trial: Trial that comes closest to meeting the constraints, if there is no
            incumbent.
        rechecks: Losses of all trials that were re-evaluated on a second split.
        finalists: Losses of the latest finalists on both splits, the best finalist first.
        no_model: Reason why the latest session ended without a model.
        decisions: Decisions of the method during the search.
        algorithm_seconds: Measured seconds of each algorithm, for later studies.
        versions: Package versions in the latest session.
        notices: Warnings of all sessions.
        notes: Notes of the first session on data and decisions.
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

    @classmethod
    def from_stored(cls, stored: StoredStudy) -> Self:
        """Return the facts of a stored study; raise `DatabaseDamaged` if they are damaged."""
        with documents_of(stored.name):
            return from_document(cls, stored.result)
