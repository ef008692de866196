"""The report of a study as a page, with the method's decisions and how to reproduce the study."""

import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from prefect_tune.deployments.report.page import Command, Part, ReportPage, Section, Table, Text
from prefect_tune.deployments.report.sections.answers import alert_of, answers_of
from prefect_tune.deployments.report.sections.codes import codes_section, coverage_section
from prefect_tune.deployments.report.sections.failures import failures_section
from prefect_tune.deployments.report.sections.fidelities import fidelities_section
from prefect_tune.deployments.report.sections.importance import importance_section
from prefect_tune.deployments.report.sections.model import model_section
from prefect_tune.deployments.report.sections.paths import paths_section
from prefect_tune.deployments.report.sections.progress import progress_section
from prefect_tune.deployments.report.sections.quality import quality_section
from prefect_tune.deployments.report.sections.step_times import step_times_section
from prefect_tune.deployments.report.sections.trade_offs import trade_offs_section
from prefect_tune.deployments.report.wording import made_now
from prefect_tune.flows.reporting.study_report import Reproduction, StudyReport
from prefect_tune.flows.text import counted, format_seconds
from prefect_tune.optimizers.registry import METHODS


def decisions_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if the method has something to say."""
    summary = report.summary
    method, decisions = METHODS.get(summary["method"]), summary["decisions"]
    lines = method.decision_lines(decisions) if method is not None else []
    if (race := decisions.get("race")) is not None:
        begun = counted(race["begun"], "configuration")
        lines.append(f"race: of {begun} {race['stopped']:,} ended early, clearly behind")
    lines += [f"{note}" for note in decisions.get("notes", ())]
    phases = _phases(report)
    purpose = f"{summary['method']}: {method.purpose}." if method is not None else ""
    if lines or phases:
        parts = [*([Text(lines)] if lines else ()), *phases]
        yield Section("decisions", "How the method decided", purpose or summary["method"], parts)


def _phases(report: StudyReport) -> list[Table]:
    counts: dict[str, list[float | None]] = {}
    for phase, loss in zip(report.progress.phase, report.progress.loss, strict=True):
        if phase:
            counts.setdefault(phase, []).append(loss)
    rows = [
        [phase, f"{len(losses):,}", f"{min(known):.4g}" if known else "-"]
        for phase, losses in counts.items()
        for known in [[loss for loss in losses if loss is not None]]
    ]
    return (
        [Table("Why trials were asked for", ["phase", "#trials", "#least loss"], rows)]
        if rows
        else []
    )


def reproduction_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section."""
    of, again = report.reproduction, f"The same command and seed ({report.reproduction.seed})"
    command = Command(shlex.join(of.command), "Use an empty store, or another --study name.")
    if of.repeats_itself:
        finding = f"{again} repeat these trials on one worker with a budget of trials."
    else:
        finding = (
            f"{again} search the same way, but {report.summary['method']} also looks at the "
            "seconds that trials take, so some trials will differ."
        )
    parts: list[Part] = [Text([_obstacle(of)]) if _obstacle(of) else command]
    parts += [
        Table("What determines the result", ["", ""], _determining(report), is_open=True),
    ]
    if of.versions:
        rows = [[package, version] for package, version in of.versions.items()]
        parts.append(Table("Versions of the last session", ["package", "version"], rows))
    yield Section("again", "How to reproduce it", finding, parts)


def _obstacle(of: Reproduction) -> str:
    """Return why no command has the study again; empty if one does."""
    if of.removed_option:
        return (
            f"It was started with {of.removed_option}, an option that this version no longer has: "
            "it cannot be extended, and no command repeats it."
        )
    if of.is_of_frame:
        return "The data was a DataFrame in Python: pass it to `tune` or PipelineSearch again."
    return ""


def _determining(report: StudyReport) -> list[list[str]]:
    of, summary = report.reproduction, report.summary
    facts = [
        ("data", of.data),
        ("digest of the data", of.dataset),
        ("digest of the split", of.split),
        ("space", of.space),
        ("digest of the space", of.space_digest),
        ("method", summary["method"]),
        ("metric", summary["metric"]),
        ("seed", str(of.seed)),
        ("Prefect flow run", of.flow_run_id or "none"),
    ]
    return [list(fact) for fact in facts]


_SECTIONS: tuple[Callable[[StudyReport], Iterator[Section]], ...] = (
    progress_section,
    model_section,
    quality_section,
    codes_section,
    coverage_section,
    trade_offs_section,
    paths_section,
    importance_section,
    step_times_section,
    failures_section,
    fidelities_section,
    decisions_section,
    reproduction_section,
)


def study_page(report: StudyReport) -> ReportPage:
    """Return the page of a study."""
    summary = report.summary
    return ReportPage(
        title=summary["study"],
        kind="Study",
        state=summary["state"],
        facts=list(_facts(report)),
        alert=alert_of(report),
        answers=answers_of(report),
        sections=[section for make in _SECTIONS for section in make(report)],
        made=made_now(),
    )


def _facts(report: StudyReport) -> Iterator[str]:
    summary = report.summary
    yield f"{summary['method']} in space {summary['space']}"
    yield f"data {summary['data']}"
    yield counted(summary["n_trials"], "trial")
    yield f"{format_seconds(summary['seconds']['total'])} total"
    yield datetime.fromtimestamp(report.created, UTC).strftime("%Y-%m-%d %H:%M UTC")
