"""The page of a study: the lines of `show`, the next commands, and a section for each figure."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

import pandas as pd

from prefect_tune.deployments.report.figures.costs import (
    failures_section,
    step_times_section,
    trade_offs_section,
)
from prefect_tune.deployments.report.figures.model import (
    codes_section,
    coverage_section,
    model_section,
    quality_section,
)
from prefect_tune.deployments.report.figures.search import (
    decisions_section,
    fidelities_section,
    importance_section,
    paths_section,
    progress_section,
)
from prefect_tune.deployments.report.figures.series import series_section
from prefect_tune.deployments.report.page import Command, Part, ReportPage, Section, Table, Text
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.reading.commands import next_commands
from prefect_tune.flows.reading.study_lines import study_lines


def study_page(report: StudyReport) -> ReportPage:
    """Return the page of a study."""
    view = report.summary
    created, tested = datetime.fromtimestamp(report.created, UTC), view.test_loss
    return ReportPage(
        title=view.study,
        kind="Study",
        state=view.state,
        facts=[
            f"{view.method} in space {view.space}",
            f"data {view.data}",
            created.strftime("%Y-%m-%d %H:%M UTC"),
        ],
        headline="" if tested is None else f"{view.losses.named(tested)} on the test rows",
        lines=[line for line in study_lines(view) if line.text not in view.decision_lines()],
        commands=[*_next(report)],
        sections=[*_sections(report)],
    )


def _next(report: StudyReport) -> Iterator[Command]:
    view, again = report.summary, report.reproduction
    if view.state != "running" and not again.obstacle:
        purpose, words = "resume with twice the budget", again.longer
        if view.state == "interrupted":
            purpose, words = "resume the study", again.resumed
        yield Command(shlex.join([*words, *view.store_options]), purpose)
    has_failed = view.n_failed > 0 and not again.obstacle
    yield from map(Command, next_commands(view, "report", has_failed=has_failed))


def _sections(report: StudyReport) -> Iterator[Section]:
    yield from progress_section(report)
    yield from series_section(report.series)
    yield from model_section(report)
    yield from quality_section(report)
    yield from codes_section(report)
    yield from coverage_section(report)
    yield from trade_offs_section(report)
    yield from paths_section(report)
    yield from importance_section(report)
    yield from step_times_section(report)
    yield from failures_section(report)
    yield from fidelities_section(report)
    yield from decisions_section(report)
    yield from reproduction_section(report)


def reproduction_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section."""
    again = report.reproduction
    note = "The same command and seed repeat the search, but the method uses the seconds of trials."
    if again.repeats_itself:
        note = "The same command and seed repeat these trials on one worker with a trial budget."
    command = Command(shlex.join(again.command), "Use an empty store or another --study name.")
    facts = pd.DataFrame(again.facts.items(), columns=["of", "value"])
    parts: list[Part] = [Text([again.obstacle]) if again.obstacle else command]
    parts.append(Table.of("What determines the result", facts, is_open=True))
    yield Section("again", "Reproduce the study", note, parts)
