"""Terminal output on studies and series: lists and summaries."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.reading.study_lines import Strong, next_commands, study_lines
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.series.view import losses_of, run_cells
from prefect_tune.flows.wording.text import bracketed, counted, printable
from prefect_tune.storage.series import Series

_STYLES = {"plain": "", "warning": "yellow", "alert": "bold yellow"}
"""Styles of lines by tone."""


def print_summary(view: StudyView, *, notes: bool = False) -> None:
    """Print a study: best pipeline, trials, decisions, cache, and optionally the method's notes."""
    CONSOLE.print(line(bold(view.study), f" ({view.method}, {view.state})"))
    for of_study in study_lines(view, notes=notes):
        text = Text("  " * (1 + of_study.depth), _STYLES[of_study.tone])
        for part in of_study.parts:
            text.append(printable(part), "bold" if isinstance(part, Strong) else "")
        CONSOLE.print(text)
    for k, command in enumerate(next_commands(view, "show" if notes else "")):
        CONSOLE.print(line("        " if k else "  next: ", command))


def print_studies(views: Sequence[StudyView], n_more: int = 0) -> None:
    """Print one study per line, and the command that lists `n_more` others."""
    table = Table(
        uncut_column("study"), "state", "method", "metric", "best", "trials", "failed", "data",
        box=None,
    )  # fmt: skip
    for view in views:
        best = view.incumbent
        table.add_row(
            view.study,
            view.state,
            view.method,
            view.losses.name,
            f"{view.losses.of(best.loss)}{bracketed(best.fidelity)}" if best else "",
            str(view.n_trials),
            str(view.n_failed),
            view.data,
        )
    CONSOLE.print(table if views else "no studies")
    if n_more > 0:
        CONSOLE.print(f" {n_more:,} more: prefect-tune study ls")


def print_all_series(found: Sequence[Series]) -> None:
    """Print series, one series per line."""
    table = Table(
        uncut_column("series"), "metric", "runs", "last study", "state", "champion", box=None
    )
    for series in found:
        last, champion = series.runs[-1], series.champion
        table.add_row(
            series.name,
            losses_of(series).name,
            str(len(series.runs)),
            last.study,
            last.state,
            champion.study if champion else "",
        )
    CONSOLE.print(table if found else "no series")


def print_series(series: Series) -> None:
    """Print a series with its runs, one run per line."""
    target = series.question.get("target")
    of_target = f" of {target}" if target else ""
    runs = counted(len(series.runs), "run")
    CONSOLE.print(line(bold(series.name), f" ({losses_of(series).name}{of_target}, {runs})"))
    cells = [run_cells(series, run) for run in series.runs]
    first, *others = cells[0]
    table = Table(uncut_column(first), *others, box=None)
    for run, texts in zip(series.runs, cells, strict=True):
        table.add_row(*texts.values())
        if run.skipped:
            later = f"skipped {counted(run.skipped, 'later run')} without changes"
            table.add_row("", "", "", "", later)
    CONSOLE.print(table)
    for run in series.runs:
        if run.decision is not None:
            CONSOLE.print(line(f"  {run.study}: {run.decision.reason}"))
    if series.champions:
        champion, *former = [kept.study for kept in series.champions]
        kept = f"; kept for a rollback: {', '.join(former)}" if former else ""
        CONSOLE.print(line("  champion: ", bold(champion), kept))
