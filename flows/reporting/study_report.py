"""Everything that is reported of one study, gathered in one pass over its trials."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefect_tune.flows.reporting.failures import FailureGroup, FailuresPass
from prefect_tune.flows.reporting.fidelities import Fidelities, FidelitiesPass
from prefect_tune.flows.reporting.importance import ImportancePass
from prefect_tune.flows.reporting.members import Member, MembersPass
from prefect_tune.flows.reporting.paths import PathsPass, PathsTried
from prefect_tune.flows.reporting.progress import Progress, ProgressPass
from prefect_tune.flows.reporting.reproduction import Reproduction, reproduction_of
from prefect_tune.flows.reporting.step_times import StepTime, StepTimesPass
from prefect_tune.flows.reporting.trade_offs import TradeOff, TradeOffsPass
from prefect_tune.flows.study.documents import TrialDocument
from prefect_tune.flows.study.lookup import find_study
from prefect_tune.flows.study.plan import StudyPlan
from prefect_tune.flows.study.summary import summarize
from prefect_tune.optimizers.importance.importance import Importance
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore

__all__ = ["StudyReport", "study_report"]


@dataclass(frozen=True, slots=True)
class StudyReport:
    """Everything that is reported of one study.

    Attributes:
        summary: As `show --json` prints it.
        created: When it was started, in seconds since 1970.
        progress: Its trials in the order in which they ended, and who led.
        paths: What was tried, and how well that went.
        step_times: Where the time went.
        failures: Why trials failed.
        trade_offs: The loss against each limited quantity.
        fidelities: Evaluations of less than everything.
        members: Trials that the final model is made of, the heaviest first.
        importance: How much each choice matters.
        reproduction: How to have it again.
    """

    summary: Mapping[str, Any]
    created: float
    progress: Progress
    paths: PathsTried
    step_times: Sequence[StepTime]
    failures: Sequence[FailureGroup]
    trade_offs: Sequence[TradeOff]
    fidelities: Fidelities
    members: Sequence[Member]
    importance: Importance
    reproduction: Reproduction

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def study_report(store: ArtifactStore, name: str) -> StudyReport:
    """Gather everything that is reported of a study.

    Raises:
        UnknownName: If there is no such study.
    """
    record = find_study(store, name)
    plan = StudyPlan.from_stored(record)
    progress, importance = ProgressPass(plan), ImportancePass(plan)
    paths, step_times, failures = PathsPass(), StepTimesPass(), FailuresPass()
    trade_offs, fidelities = TradeOffsPass(plan), FidelitiesPass(plan)
    members = MembersPass(record.result.get("members") or ())
    passes = progress, importance, paths, step_times, failures, trade_offs, fidelities, members

    def take(trial: TrialDocument) -> None:
        for each in passes:
            each.add(trial)

    return StudyReport(
        summary=summarize(store, name, take),
        created=record.created,
        progress=progress.found(Ledger(store.database), name),
        paths=paths.found(),
        step_times=step_times.found(store.index, name),
        failures=failures.found(),
        trade_offs=trade_offs.found(),
        fidelities=fidelities.found(),
        members=members.found(),
        importance=importance.found(),
        reproduction=reproduction_of(record, plan),
    )
