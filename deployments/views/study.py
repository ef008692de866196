"""Studies, as a list or in summary."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from prefect_tune.deployments.views.console import CONSOLE, bold, line, uncut_column
from prefect_tune.flows.reading.commands import next_commands
from prefect_tune.flows.reading.study_lines import Strong, StudyLine, study_lines
from prefect_tune.flows.reading.study_view import StudyView
from prefect_tune.flows.wording.text import bracketed, printable

_STYLES = {"plain": "", "warning": "yellow", "alert": "bold yellow"}
"""Styles of lines by tone."""


def print_summary(view: StudyView, *, notes: bool = False) -> None:
    """Print a study: best pipeline, trials, decisions, cache, and optionally the method's notes."""
    CONSOLE.print(line(bold(view.study), f" ({view.method}, {view.state})"))
    for of_study in study_lines(view, notes=notes):
        CONSOLE.print(_styled(of_study))
    commands = next_commands(view, "show" if notes else "", has_failed=view.n_failed > 0)
    for k, command in enumerate(commands):
        CONSOLE.print(line("        " if k else "  next: ", command))


def _styled(of_study: StudyLine) -> Text:
    text = Text("  " * (1 + of_study.depth), _STYLES[of_study.tone])
    for part in of_study.parts:
        text.append(printable(part), "bold" if isinstance(part, Strong) else "")
    return text


def print_studies(views: Sequence[StudyView]) -> None:
    """Print studies, one per line."""
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
