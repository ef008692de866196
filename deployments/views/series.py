"""Series, as a list or with their runs."""

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.reading.series_view import SeriesView
from prefect_tune.flows.text import counted


def print_all_series(views: Sequence[SeriesView]) -> None:
    """Print series, one per line."""
    table = Table(
        uncut_column("series"), "metric", "runs", "last study", "state", "champion", box=None
    )
    for view in views:
        last = view.runs[-1] if view.runs else None
        table.add_row(
            view.series,
            view.losses.name,
            str(len(view.runs)),
            last.study if last else "",
            last.state if last else "",
            view.champion or "",
        )
    CONSOLE.print(table if views else "no series")


def print_series(view: SeriesView) -> None:
    """Print a series with its runs, one per line."""
    target = view.question.get("target")
    of_target = f" of {target}" if target else ""
    runs = counted(len(view.runs), "run")
    CONSOLE.print(line(bold(view.series), f" ({view.losses.name}{of_target}, {runs})"))
    table = Table(
        uncut_column("study"), "started", "state", "rows", "changes", view.losses.name, "test rows",
        "reused", "model", box=None,
    )  # fmt: skip
    for run in view.runs:
        table.add_row(
            run.study,
            _minute(run.at),
            run.state,
            f"{run.rows:,}",
            run.changes_text,
            view.losses.of(run.loss),
            view.losses.of(run.test_loss),
            run.reused_text,
            run.model_text,
        )
        if run.skipped:
            later = f"nothing changed in {counted(run.skipped, 'later run')}, skipped"
            table.add_row("", "", "", "", later)
    CONSOLE.print(table)
    for run in view.runs:
        if run.decision:
            CONSOLE.print(line(f"  {run.study}: {run.decision}"))
    for change in view.by_hand:
        how = "promoted by hand" if change.action == "promote" else "champion again by a rollback"
        CONSOLE.print(line(f"  {change.study}: {how}, {_minute(change.at)}"))
    if view.champion is not None:
        former = f"; kept for a rollback: {', '.join(view.former)}" if view.former else ""
        CONSOLE.print(line("  champion: ", bold(view.champion), former))


def _minute(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
