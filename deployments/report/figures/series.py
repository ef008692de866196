"""The series of a study: its runs in a table, and their losses over time."""

from collections.abc import Iterator

import plotly.graph_objects as go

from prefect_tune.deployments.report.page import Figure, Part, Section, Table
from prefect_tune.flows.series.view import losses_of, run_cells
from prefect_tune.flows.wording.text import counted
from prefect_tune.storage.series import Series


def series_section(series: Series | None) -> Iterator[Section]:
    """Yield the section, if the study belongs to a series."""
    if series is None:
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
        parts.insert(0, _figure(series))
    champion = series.champion
    text = f"the champion is {champion.study}" if champion else "no champion yet"
    finding = f"{counted(len(series.runs), 'run')} of {series.name}; {text}."
    yield Section("series", "Runs of the series", finding, parts)


def _figure(series: Series) -> Figure:
    drawn, numbers = go.Figure(), [run.number for run in series.runs]
    for name, colour, losses in (
        ("search", "var(--c0)", [run.loss for run in series.runs]),
        ("test rows", "var(--c4)", [run.test_loss for run in series.runs]),
    ):
        line = {"mode": "lines+markers", "line": {"color": colour}}
        drawn.add_scatter(name=name, x=numbers, y=losses, **line)
    for run in series.runs:
        if run.decision and run.decision.promoted:
            drawn.add_vline(x=run.number, line_dash="dot", line_color="var(--c2)", line_width=1)
    drawn.update_xaxes(title="number of the study", tickformat="d")
    drawn.update_yaxes(title=losses_of(series).name)
    note = "Vertical lines are promotions. Losses of different studies are on different data."
    return Figure("Loss of each study", drawn, note=note)
