"""The report of a study: collected in one pass over its trials, then built as a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from prefect_tune.deployments.report.answers import (
    alert_of,
    best_answer,
    failed_answer,
    loss_answer,
    next_answer,
    saved_answer,
)
from prefect_tune.deployments.report.figures.codes import codes_section, coverage_section
from prefect_tune.deployments.report.figures.failures import (
    FailuresPass,
    failures_section,
)
from prefect_tune.deployments.report.figures.fidelities import (
    Fidelities,
    FidelitiesPass,
    fidelities_section,
)
from prefect_tune.deployments.report.figures.importance import ImportancePass, importance_section
from prefect_tune.deployments.report.figures.model import (
    Members,
    MembersPass,
    Reproduction,
    model_section,
    reproduction_of,
    reproduction_section,
)
from prefect_tune.deployments.report.figures.paths import PathsPass, PathsTried, paths_section
from prefect_tune.deployments.report.figures.progress import (
    ProgressPass,
    SearchProgress,
    progress_section,
)
from prefect_tune.deployments.report.figures.quality import (
    ModelReport,
    model_report,
    quality_section,
)
from prefect_tune.deployments.report.figures.series import series_section
from prefect_tune.deployments.report.figures.step_times import (
    StepTime,
    StepTimesPass,
    step_times_section,
)
from prefect_tune.deployments.report.figures.trade_offs import (
    TradeOff,
    TradeOffsPass,
    trade_offs_section,
)
from prefect_tune.deployments.report.page import ReportPage, Section, Table, Text
from prefect_tune.deployments.report.wording import made_now
from prefect_tune.flows.reading.opened_study import open_study
from prefect_tune.flows.reading.series_view import SeriesView, series_of
from prefect_tune.flows.reading.study_view import StudyView, read_study
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.text import FailureGroup, counted, format_seconds
from prefect_tune.optimizers.importance import Importance
from prefect_tune.optimizers.registry import METHODS
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.store import ArtifactStore


@dataclass(frozen=True, slots=True)
class StudyReport:
    """The contents of a study's report; `summary` is the output of `show --json`."""

    summary: StudyView
    created: float
    progress: SearchProgress
    paths: PathsTried
    step_times: Sequence[StepTime]
    failures: Sequence[FailureGroup]
    trade_offs: Sequence[TradeOff]
    fidelities: Fidelities
    members: Members
    importance: Importance
    model: ModelReport
    reproduction: Reproduction
    series: SeriesView | None


def study_report(store: ArtifactStore, name: str) -> StudyReport:
    """Collect the report of a study; raises UnknownName if the study does not exist."""
    study = open_study(store, name)
    record, plan = study.row, study.plan
    progress, importance = ProgressPass(plan), ImportancePass(plan)
    paths, step_times, failures = PathsPass(), StepTimesPass(), FailuresPass()
    trade_offs, fidelities = TradeOffsPass(plan), FidelitiesPass(plan)
    members = MembersPass(study.facts.model.members)
    passes = progress, importance, paths, step_times, failures, trade_offs, fidelities, members

    def take(trial: TrialView) -> None:
        for each in passes:
            each.add(trial)

    return StudyReport(
        summary=read_study(store, name, take),
        created=record.created,
        progress=progress.found(Ledger(store.database), name),
        paths=paths.found(),
        step_times=step_times.found(store.index, name),
        failures=failures.found(),
        trade_offs=trade_offs.found(),
        fidelities=fidelities.found(),
        members=members.found(),
        importance=importance.found(),
        model=model_report(store, name, plan),
        reproduction=reproduction_of(record, plan),
        series=series_of(store, plan),
    )


def study_page(report: StudyReport) -> ReportPage:
    """Return the page of a study."""
    summary, members = report.summary, report.members
    created = datetime.fromtimestamp(report.created, UTC)
    return ReportPage(
        title=summary.study,
        kind="Study",
        state=summary.state,
        facts=[
            f"{summary.method} in space {summary.space}",
            f"data {summary.data}",
            counted(summary.n_trials, "trial"),
            f"{format_seconds(summary.seconds.total)} total",
            created.strftime("%Y-%m-%d %H:%M UTC"),
        ],
        alert=alert_of(summary),
        answers=[
            best_answer(summary, members),
            loss_answer(summary, members, report.model.auroc_text),
            failed_answer(summary, report.failures),
            saved_answer(summary, report.step_times),
            next_answer(summary, members, report.reproduction),
        ],
        sections=list(_sections(report)),
        made=made_now(),
    )


def _sections(report: StudyReport) -> Iterator[Section]:
    summary, progress, again = report.summary, report.progress, report.reproduction
    yield from progress_section(progress, summary)
    yield from series_section(report.series)
    yield from model_section(report.members, summary)
    yield from quality_section(report.model)
    yield from codes_section(report.model, len(report.members), summary)
    yield from coverage_section(report.model)
    yield from trade_offs_section(report.trade_offs, summary)
    yield from paths_section(report.paths, summary)
    yield from importance_section(report.importance, summary)
    yield from step_times_section(report.step_times, summary)
    yield from failures_section(report.failures, summary, can_retry=not again.removed_option)
    yield from fidelities_section(report.fidelities, progress, summary)
    yield from decisions_section(progress, summary)
    yield from reproduction_section(again, summary)


def decisions_section(progress: SearchProgress, summary: StudyView) -> Iterator[Section]:
    """Yield the section, if the method reports decisions."""
    name, lines = summary.method, [*summary.decision_lines(), *summary.method_notes]
    phases: dict[str, list[float | None]] = {}
    for phase, loss in zip(progress.phase, progress.loss, strict=True):
        if phase:
            phases.setdefault(phase, []).append(loss)
    parts: list[Text | Table] = [Text(lines)] if lines else []
    if phases:
        rows = [
            [phase, f"{len(losses):,}", summary.losses.of(min(known, default=None))]
            for phase, losses in phases.items()
            for known in [[loss for loss in losses if loss is not None]]
        ]
        columns = ["phase", "#trials", "#least loss"]
        parts.append(Table("Reasons for proposing trials", columns, rows))
    if parts:
        finding = f"{name}: {METHODS[name].purpose}." if name in METHODS else name
        yield Section("decisions", "Decisions of the method", finding, parts)
