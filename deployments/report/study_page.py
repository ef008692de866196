"""The page of a study: the lines of `show`, the next commands, and a section for each figure."""

import shlex
from collections.abc import Iterator
from datetime import UTC, datetime

import pandas as pd
import plotly.graph_objects as go

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
from prefect_tune.deployments.report.page import (
    Command,
    Figure,
    Part,
    ReportPage,
    Section,
    Table,
    Text,
)
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.reading.commands import next_commands
from prefect_tune.flows.reading.study_lines import study_lines
from prefect_tune.flows.series.view import losses_of, run_cells
from prefect_tune.flows.wording.text import counted


def study_page(report: StudyReport) -> ReportPage:
    """Return the page of a study."""
    view = report.summary
    created, tested = datetime.fromtimestamp(report.created, UTC), view.test_loss
    again, commands = report.reproduction, list[Command]()
    if view.state != "running" and not again.obstacle:
        is_cut = view.state == "interrupted"
        purpose = "resume the study" if is_cut else "resume with twice the budget"
        words = again.resumed if is_cut else again.longer
        commands.append(Command(shlex.join([*words, *view.store_options]), purpose))
    has_failed = view.n_failed > 0 and not again.obstacle
    commands += map(Command, next_commands(view, "report", has_failed=has_failed))
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
        commands=commands,
        sections=[section for make in _SECTIONS for section in make(report)],
    )


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


def series_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section, if the study belongs to a series."""
    if (series := report.series) is None:
        return
    cells = [
        {**run_cells(series, run), "decision": run.decision.reason if run.decision else ""}
        for run in reversed(series.runs)
    ]
    numeric = {"rows", losses_of(series).name, "test rows"}
    columns = [f"#{name}" if name in numeric else name for name in cells[0]]
    rows = [[*texts.values()] for texts in cells]
    parts: list[Part] = [Table("Runs", columns, rows, is_open=True)]
    if any(run.loss is not None for run in series.runs):
        drawn, numbers = go.Figure(), [run.number for run in series.runs]
        words = losses_of(series)
        for name, colour, losses in (
            ("search", "var(--c0)", [run.loss for run in series.runs]),
            ("test rows", "var(--c4)", [run.test_loss for run in series.runs]),
        ):
            line = {"mode": "lines+markers", "line": {"color": colour}}
            y = [None if loss is None else words.number(loss) for loss in losses]
            drawn.add_scatter(name=name, x=numbers, y=y, **line)
        for run in series.runs:
            if run.decision and run.decision.promoted:
                drawn.add_vline(x=run.number, line_dash="dot", line_color="var(--c2)", line_width=1)
        drawn.update_xaxes(title="number of the study", tickformat="d")
        drawn.update_yaxes(title=words.axis)
        note = "Vertical lines are promotions. The studies are on different data."
        parts.insert(0, Figure("Score of each study", drawn, note=note))
    champion = series.champion
    text = f"the champion is {champion.study}" if champion else "no champion yet"
    finding = f"{counted(len(series.runs), 'run')} of {series.name}; {text}."
    yield Section("series", "Runs of the series", finding, parts)


_SECTIONS = (
    progress_section, series_section, model_section, quality_section, codes_section,
    coverage_section, trade_offs_section, paths_section, importance_section, step_times_section,
    failures_section, fidelities_section, decisions_section, reproduction_section,
)  # fmt: skip
