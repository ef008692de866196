"""Series, as a list or with their runs."""

from collections.abc import Sequence

from rich.table import Table

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.series.view import losses_of, run_cells
from prefect_tune.flows.wording.text import counted
from prefect_tune.storage.series import Series


def print_all_series(found: Sequence[Series]) -> None:
    """Print series, one per line."""
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
    """Print a series with its runs, one per line."""
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
            later = f"nothing changed in {counted(run.skipped, 'later run')}, skipped"
            table.add_row("", "", "", "", later)
    CONSOLE.print(table)
    for run in series.runs:
        if run.decision is not None:
            CONSOLE.print(line(f"  {run.study}: {run.decision.reason}"))
    if series.champions:
        champion, *former = [kept.study for kept in series.champions]
        kept = f"; kept for a rollback: {', '.join(former)}" if former else ""
        CONSOLE.print(line("  champion: ", bold(champion), kept))
