"""The series of a study: its runs in a table, and their losses over time."""

from collections.abc import Iterator
from datetime import UTC, datetime

from prefect_tune.deployments.report.page import Figure, Part, Section, Table
from prefect_tune.deployments.report.plots import axis, plot, scatter
from prefect_tune.flows.reading.series_view import RunView, SeriesView
from prefect_tune.flows.text import counted

_LINES = (("search", "var(--c0)", "circle"), ("test rows", "var(--c4)", "diamond"))
"""Name, colour and symbol of the losses of the search and on the test rows."""


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
    words, runs = series.losses, series.runs
    columns = [run.loss for run in runs], [run.test_loss for run in runs]
    traces = []
    for (name, colour, symbol), losses in zip(_LINES, columns, strict=True):
        labels = [f"{run.study}: {words.of(loss)}" for run, loss in zip(runs, losses, strict=True)]
        style = {
            "line": {"color": colour},
            "marker": {"color": colour, "symbol": symbol, "size": 8},
        }
        numbers = [float(run.number) for run in runs]
        traces.append(scatter(name, numbers, losses, style, labels, mode="lines+markers"))
    layout = {
        "xaxis": axis("number of the study", tickformat="d"),
        "yaxis": axis(words.name),
        "shapes": list(_promotions(runs)),
    }
    note = "Vertical lines are promotions. Losses of different studies are on different data."
    return Figure("series-losses", "Loss of each study", plot(traces, **layout), note=note)


def _promotions(runs: tuple[RunView, ...]) -> Iterator[dict[str, object]]:
    """Yield a vertical line at each study that became the champion."""
    for run in runs:
        if run.is_promoted:
            yield {
                "type": "line", "x0": run.number, "x1": run.number, "yref": "paper", "y0": 0,
                "y1": 1, "line": {"color": "var(--c2)", "dash": "dot", "width": 1},
            }  # fmt: skip


def _table(series: SeriesView) -> Table:
    words = series.losses
    return Table.of(
        "Runs",
        series.runs[::-1],
        {
            "study": lambda run: run.study,
            "started": lambda run: datetime.fromtimestamp(run.at, UTC).strftime("%Y-%m-%d %H:%M"),
            "state": lambda run: run.state,
            "#rows": lambda run: f"{run.rows:,}",
            "changes": lambda run: run.changes_text,
            f"#{words.name}": lambda run: words.of(run.loss),
            "#test rows": lambda run: words.of(run.test_loss),
            "reused": lambda run: run.reused_text,
            "model": lambda run: run.model_text,
            "decision": lambda run: run.decision or "",
        },
        is_open=True,
    )
