"""The report of a study as a page."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from prefect_tune.deployments.report.page import Page, Section
from prefect_tune.deployments.report.sections.answers import alert_of, answers_of
from prefect_tune.deployments.report.sections.decisions import decisions_section
from prefect_tune.deployments.report.sections.failures import failures_section
from prefect_tune.deployments.report.sections.fidelities import fidelities_section
from prefect_tune.deployments.report.sections.importance import importance_section
from prefect_tune.deployments.report.sections.model import model_section
from prefect_tune.deployments.report.sections.paths import paths_section
from prefect_tune.deployments.report.sections.progress import progress_section
from prefect_tune.deployments.report.sections.reproduction import reproduction_section
from prefect_tune.deployments.report.sections.step_times import step_times_section
from prefect_tune.deployments.report.sections.trade_offs import trade_offs_section
from prefect_tune.deployments.report.wording import made_now
from prefect_tune.flows.reporting.study_report import StudyReport
from prefect_tune.flows.text import counted, format_seconds

__all__ = ["study_page"]

_SECTIONS: tuple[Callable[[StudyReport], Iterator[Section]], ...] = (
    progress_section,
    model_section,
    trade_offs_section,
    paths_section,
    importance_section,
    step_times_section,
    failures_section,
    fidelities_section,
    decisions_section,
    reproduction_section,
)


def study_page(report: StudyReport) -> Page:
    """Return the page of a study."""
    summary = report.summary
    return Page(
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
