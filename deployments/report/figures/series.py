"""The series of a study: its runs in a table, and their losses over time."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pandas as pd
import plotly.graph_objects as go

from prefect_tune.deployments.report.page import Figure, Part, Section, Table
from prefect_tune.flows.reading.series_view import SeriesView
from prefect_tune.flows.text import counted


def series_section(series: SeriesView | None) -> Iterator[Section]:
    """Yield the section, if the study belongs to a series."""
    if series is None:
        return
    parts: list[Part] = [_table(series)]
    if any(run.loss is not None for run in series.runs):
        parts.insert(0, _figure(series))
    champion = f"the champion is {series.champion}" if series.champion else "no champion yet"
    finding = f"{counted(len(series.runs), 'run')} of {series.series}; {champion}."
    yield Section("series", "Runs of the series", finding, parts)


def _figure(series: SeriesView) -> Figure:
    words, drawn = series.losses, go.Figure()
    numbers = [run.number for run in series.runs]
    for name, colour, losses in (
        ("search", "var(--c0)", [run.loss for run in series.runs]),
        ("test rows", "var(--c4)", [run.test_loss for run in series.runs]),
    ):
        line = {"mode": "lines+markers", "line": {"color": colour}}
        drawn.add_scatter(name=name, x=numbers, y=losses, **line)
    for run in series.runs:
        if run.is_promoted:
            drawn.add_vline(x=run.number, line_dash="dot", line_color="var(--c2)", line_width=1)
    drawn.update_xaxes(title="number of the study", tickformat="d").update_yaxes(title=words.name)
    note = "Vertical lines are promotions. Losses of different studies are on different data."
    return Figure("Loss of each study", drawn, note=note)


def _table(series: SeriesView) -> Table:
    runs, words = series.runs[::-1], series.losses
    started = [datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d %H:%M") for run in runs]
    columns = {
        "study": [run.study for run in runs],
        "started": started,
        "state": [run.state for run in runs],
        "rows": [run.rows for run in runs],
        "changes": [run.changes_text for run in runs],
        words.name: [words.of(run.loss) for run in runs],
        "test rows": [words.of(run.test_loss) for run in runs],
        "reused": [run.reused_text for run in runs],
        "model": [run.model_text for run in runs],
        "decision": [run.decision or "" for run in runs],
    }
    return Table.of("Runs", pd.DataFrame(columns), is_open=True)
