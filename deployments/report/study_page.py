"""The page that reports a study: the lines of `show`, useful commands, and all sections."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from math import isclose

import pandas as pd
import plotly.express as px

from prefect_tune.deployments.report.figures.model import (
    data_section,
    model_section,
    quality_section,
    uses_section,
)
from prefect_tune.deployments.report.figures.search import operations_section, search_section
from prefect_tune.deployments.report.page import (
    STYLE,
    Command,
    Figure,
    Part,
    ReportPage,
    Section,
    Table,
    Text,
)
from prefect_tune.deployments.report.study_report import StudyReport
from prefect_tune.flows.reading.study_lines import next_commands, study_lines
from prefect_tune.flows.series.view import losses_of, run_cells
from prefect_tune.flows.wording.text import counted


def study_page(report: StudyReport) -> ReportPage:
    """Return the page that reports a study."""
    view = report.summary
    created = datetime.fromtimestamp(report.created, UTC).strftime("%Y-%m-%d %H:%M UTC")
    again, commands = report.reproduction, list[Command]()
    if view.state != "running" and not again.obstacle:
        is_cut = view.state == "interrupted"
        purpose = "resume the study" if is_cut else "resume with twice the budget"
        words = again.resumed if is_cut else again.longer
        commands.append(Command(shlex.join([*words, *view.store_options]), purpose))
    listed = replace(view, n_failed=0) if again.obstacle else view  # nothing can be retried
    commands += map(Command, next_commands(listed, "report"))
    return ReportPage(
        title=view.study,
        kind="Study",
        state=view.state,
        facts=[f"{view.method} in space {view.space}", f"data {view.data}", created],
        headline=verdict(report),
        lines=[line for line in study_lines(view) if line.text not in view.decision_lines()],
        commands=commands,
        sections=[section for make in _SECTIONS for section in make(report)],
    )


def verdict(report: StudyReport) -> str:
    """Return the result of the study as a sentence."""
    view, words = report.summary, report.summary.losses
    of, baseline = report.model.intervals.get(view.metric), view.baseline and f"; {view.baseline}"
    if view.test_loss is None:
        best = view.incumbent and words.named(view.incumbent.loss)
        untested = "test rows not scored" if report.model.n_rows else "no test rows"
        return f"{best} on held-out rows; {untested}{baseline}" if best else "No result"
    rows = f"on {counted(report.model.n_rows, 'test row')}{baseline}"
    # The loss may exclude test rows that equal training rows.
    if of is None or of.low is None or not isclose(of.loss, view.test_loss):
        return f"{words.named(view.test_loss)} {rows}"
    return f"{words.named(of.loss)} (95% interval {words.interval(of.low, of.high)}) {rows}"


def reproduction_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section that tells how to reproduce the study."""
    again = report.reproduction
    note = "The same command and seed may give other trials: the method uses measured seconds."
    if again.repeats_itself:
        note = "With one worker and --trials, the same command and seed repeat these trials."
    command = Command(shlex.join(again.command), "Use an empty store or another --study name.")
    facts = pd.DataFrame(again.facts.items(), columns=["name", "value"])
    parts: list[Part] = [Text([again.obstacle]) if again.obstacle else command]
    parts.append(Table.of("Inputs and versions", facts, is_open=True))
    yield Section("again", "How to reproduce the study", note, parts)


def series_section(report: StudyReport) -> Iterator[Section]:
    """Yield the section on the series, if the study belongs to a series."""
    if (series := report.series) is None:
        return
    words, runs = losses_of(series), series.runs
    decisions = [run.decision.reason if run.decision else "" for run in runs]
    table = pd.DataFrame([run_cells(series, run) for run in runs]).assign(decision=decisions)
    parts: list[Part] = [Table.of("Runs", table[::-1], is_open=True)]
    losses = {"search": [run.loss for run in runs], "test rows": [run.test_loss for run in runs]}
    found = pd.DataFrame(losses, [run.number for run in runs]).dropna(how="all")
    if not found.empty:
        shown = found.astype(float).map(words.number, na_action="ignore")
        labels = {"index": "number of the study", "value": words.axis}
        drawn = px.line(shown, markers=True, labels=labels, **STYLE).update_xaxes(tickformat="d")
        for run in runs:
            if run.decision and run.decision.promoted:
                drawn.add_vline(x=run.number, line_dash="dot", line_color="var(--c2)", line_width=1)
        note = "Vertical lines are promotions. The studies are on different data."
        parts.insert(0, Figure(f"{words.name} of each study", drawn, note=note))
    champion = series.champion
    text = f"the champion is {champion.study}" if champion else "no champion yet"
    finding = f"{counted(len(series.runs), 'run')} of {series.name}; {text}."
    yield Section("series", "Runs of the series", finding, parts)


_SECTIONS = (
    quality_section, uses_section, data_section, model_section, series_section, search_section,
    operations_section, reproduction_section,
)  # fmt: skip
