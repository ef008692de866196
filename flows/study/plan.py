"""The plan of a study: everything that it is started or continued with, as one typed value.

Light to import: whoever looks at a study reads its plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from prefect_tune.flows.study.documents import documents_of
from prefect_tune.flows.study.ensemble_rule import EnsembleRule
from prefect_tune.storage.ledger import StoredStudy
from prefect_tune.tasks.data.source import Source
from prefect_tune.tasks.objective.quantity import QuantityBound
from prefect_tune.tasks.problem import Problem

if TYPE_CHECKING:
    from prefect_tune.optimizers.trials.objective import PortableSeconds
    from prefect_tune.tasks.problem import TrialLimits


TaskRuns = Literal["auto", "steps", "misses", "trial"]

_SHORTEST_TRIAL_SECONDS = 10.0
_LONGEST_TRIAL_SECONDS = 900.0
_TRIAL_SHARE = 0.1
"""Share of the time budget that a trial may take where nothing is predicted."""


@dataclass(frozen=True, slots=True)
class StopRule:
    """When the search of a study ends: at whichever comes first. Both count from its beginning.

    Attributes:
        trials: Configurations begun in all; None for no bound.
        seconds: Seconds in all; None for no bound.
    """

    trials: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials must be >= 1; got {self.trials}")
        if self.seconds is not None and self.seconds <= 0:
            raise ValueError(f"seconds must be > 0; got {self.seconds}")

    @property
    def is_open(self) -> bool:
        """Whether nothing is bounded."""
        return self.trials is None and self.seconds is None


@dataclass(frozen=True, slots=True)
class Execution:
    """Where the trials of one session run. The ledger does not keep it.

    Attributes:
        workers: Trials at the same time; None for one per core, or per worker of the scheduler.
        dask: Address of a Dask scheduler; None for local processes.
        task_runs: Which steps are task runs.
    """

    workers: int | None = None
    dask: str | None = None
    task_runs: TaskRuns = "auto"

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be >= 1; got {self.workers}")


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """Everything that a study is started or continued with.

    Attributes:
        source: Where the data comes from.
        data_name: Name of the data, for people.
        problem: Data, split, space, metric and seed, by digest or name.
        folds: Folds of cross-validation; None where one part is held out instead.
        holdout: Share of the training rows held out instead.
        test_size: Share of test rows, 0 for none; None where a file names them.
        positive: Label of the class to be found, as given.
        chance_loss: Loss of guessing.
        method: Name of the method.
        options: The method's own options.
        stop_rule: When the search ends.
        trial_seconds: Seconds that a trial may take; None for a share of the time budget.
        trial_memory_bytes: Memory that a trial may take; None for a share of the machine's.
        bounds: Constraints, each with the quantity that it bounds.
        quantity_digests: By text of every quantity ever bounded, the digest of what is measured.
        ensemble: How the final model is made of the trials; None for what the method declares.
        use_cache: Whether to look for artifacts, and to keep them.
        epochs: Epochs of a full training of iterative models; None to fit them at once.
        race: Whether configurations that are clearly behind end after their first fold.
        start_from: File or study that the configurations to begin with are from.
        start: Configurations to begin with, as JSON values.
        earlier_seconds: Seconds of algorithms in earlier studies, as `Objective` has them.
        flow_run_id: The flow run of the latest session; None before the first.
        execution: Where the trials of this session run.
    """

    source: Source
    data_name: str
    problem: Problem
    folds: int | None
    holdout: float | None
    test_size: float | None
    positive: str | None
    chance_loss: float | None
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    stop_rule: StopRule = field(default_factory=StopRule)
    trial_seconds: float | None = None
    trial_memory_bytes: int | None = None
    bounds: tuple[QuantityBound, ...] = ()
    quantity_digests: Mapping[str, str] = field(default_factory=dict)
    ensemble: EnsembleRule | None = None
    use_cache: bool = True
    epochs: int | None = None
    race: bool = False
    start_from: str | None = None
    start: tuple[Mapping[str, Any], ...] = ()
    earlier_seconds: tuple["PortableSeconds", ...] = ()
    flow_run_id: str | None = None
    execution: Execution = field(default_factory=Execution)

    @property
    def space(self) -> str:
        """Name of the space."""
        return self.problem.space

    @property
    def metric(self) -> str:
        """Name of the metric."""
        return self.problem.metric

    @property
    def seed(self) -> int:
        """Source of all randomness."""
        return self.problem.seed

    @property
    def start_name(self) -> str:
        """Name of the configurations to begin with, in the reasons of their asks."""
        is_portfolio = self.start_from in (None, "portfolio")
        return "portfolio" if is_portfolio else f"best of {self.start_from}"

    def trial_limits(self) -> "TrialLimits":
        """Return what each trial may take.

        By default a tenth of the time budget, between 10 s and 15 min, which holds for refits and
        where nothing is predicted (see `TimeLimit`), and an equal share of this machine's memory;
        on another cluster what its workers have.
        """
        from dask.system import CPU_COUNT  # noqa: PLC0415 - looking needs neither

        from prefect_tune.tasks.problem import TrialLimits, share_of_memory  # noqa: PLC0415 - heavy

        seconds = self.trial_seconds
        if seconds is None:
            budget = self.stop_rule.seconds or _LONGEST_TRIAL_SECONDS / _TRIAL_SHARE
            share = _TRIAL_SHARE * budget
            seconds = min(max(share, _SHORTEST_TRIAL_SECONDS), _LONGEST_TRIAL_SECONDS)
        memory_bytes = self.trial_memory_bytes
        if memory_bytes is None and not self.execution.dask:
            memory_bytes = share_of_memory(self.execution.workers or CPU_COUNT)
        return TrialLimits(seconds, memory_bytes)

    def to_json(self) -> dict[str, Any]:
        """Return what the ledger keeps as the study's settings, beside its problem."""
        return {
            "method": self.method,
            "seed": self.problem.seed,
            "folds": self.folds,
            "holdout": self.holdout,
            "test_size": self.test_size,
            "source": self.source.to_json(),
            "metric": self.problem.metric,
            "positive": self.positive,
            "data_name": self.data_name,
            "chance_loss": self.chance_loss,
            "space": self.problem.space,
            "option": dict(self.options),
            "use_cache": self.use_cache,
            "epochs": self.epochs,
            "race": self.race,
            "start_from": self.start_from,
            "start": list(self.start),
            "earlier_seconds": [list(one) for one in self.earlier_seconds],
            "trials": self.stop_rule.trials,
            "budget_seconds": self.stop_rule.seconds,
            "constraint": [bound.to_json() for bound in self.bounds],
            "quantity_digests": dict(self.quantity_digests),
            "ensemble": self.ensemble.to_json() if self.ensemble else None,
            "trial_seconds": self.trial_seconds,
            "trial_memory_bytes": self.trial_memory_bytes,
            "flow_run_id": self.flow_run_id,
        }

    @classmethod
    def from_stored(cls, stored: StoredStudy, execution: Execution | None = None) -> Self:
        """Return the plan of a study in the ledger, the inverse of `to_json`.

        Raises:
            DatabaseDamaged: If it is not as it was written.
        """
        with documents_of(stored.name):
            return cls.from_documents(stored, execution)

    @classmethod
    def from_documents(cls, stored: StoredStudy, execution: Execution | None) -> Self:
        """Do as `from_stored`, with whatever error a damaged document raises."""
        settings, _ = stored.settings, dict(stored.result)
        ensemble = settings["ensemble"]
        return cls(
            source=Source.from_json(settings["source"]),
            data_name=settings["data_name"],
            problem=Problem.from_json(stored.problem),
            folds=settings["folds"],
            holdout=settings["holdout"],
            test_size=settings["test_size"],
            positive=settings["positive"],
            chance_loss=settings["chance_loss"],
            method=settings["method"],
            options=settings["option"],
            stop_rule=StopRule(settings["trials"], settings["budget_seconds"]),
            trial_seconds=settings["trial_seconds"],
            trial_memory_bytes=settings["trial_memory_bytes"],
            bounds=tuple(map(QuantityBound.from_json, settings["constraint"])),
            quantity_digests=settings["quantity_digests"],
            ensemble=None if ensemble is None else EnsembleRule.parse(ensemble),
            use_cache=settings["use_cache"],
            epochs=settings["epochs"],
            race=settings["race"],
            start_from=settings["start_from"],
            start=tuple(settings["start"]),
            earlier_seconds=tuple(map(tuple, settings.get("earlier_seconds", ()))),
            flow_run_id=settings["flow_run_id"],
            execution=execution or Execution(),
        )
