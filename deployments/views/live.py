"""Progress of a running study in a terminal, a log or a notebook."""

import json
import sys
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from time import monotonic
from typing import Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from prefect_tune.deployments.views.console import PlainConsole, bold, echo, echo_as_is, line
from prefect_tune.flows.reading.trial_view import TrialView
from prefect_tune.flows.study.progress import Observer, Progress
from prefect_tune.flows.wording.text import format_seconds, printable
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked, masked_values

_REFRESHES = 2
"""Refreshes of live lines per second."""
_SILENT_SECONDS = 2.0
"""Time without progress after which the elapsed seconds are shown."""


@contextmanager
def observer_for(*, quiet: bool, json_lines: bool) -> Iterator[Observer]:
    """Yield the observer that suits the output. Live lines need a terminal with UTF-8."""
    console = PlainConsole(stderr=True, highlight=False)
    if json_lines:
        yield _JsonLines()
    elif quiet:
        yield _Silent()
    elif sys.stderr.isatty() and not console.options.ascii_only:
        lines = LiveLines()
        with Live(lines, console=console, transient=True, refresh_per_second=_REFRESHES):
            yield _Terminal(console, lines)
    else:
        yield _Lines()


class _Silent(Observer):
    """Observer that prints nothing except warnings."""

    def warn(self, text: str) -> None:
        echo(f"Warning: {text}", err=True)


class _Lines(_Silent):
    """Observer that prints one plain line per trial to standard error."""

    def note(self, text: str) -> None:
        echo(text, err=True)

    def ended(self, trial: Trial, progress: Progress) -> None:
        echo(f"{progress.trial_line(trial)}  |  {progress.best_line()}", err=True)


class _JsonLines(_Silent):
    """Observer that prints one line of JSON per trial and per warning to standard output."""

    def warn(self, text: str) -> None:
        echo_as_is(json.dumps({"warning": text}, separators=(",", ":")))

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        document = TrialView(trial.to_json()).to_json()
        echo_as_is(json.dumps(masked_values(document), separators=(",", ":")))


_LAST_FAILURES = 2
_BAR_WIDTH = 8


class LiveLines:
    """Lines at the bottom of a terminal, which rich limits to the height of the terminal."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.since = 0.0
        self.failures: deque[str] = deque(maxlen=_LAST_FAILURES)

    def show(self, progress: Progress) -> None:
        """Show the progress, and the seconds since then if no later progress comes."""
        self.progress, self.since = progress, monotonic()

    def __rich__(self) -> Group:
        """Return the state of the study, the running trials, and the latest failures."""
        progress = self.progress
        if progress is None:
            return Group()
        left, total = progress.seconds_left, progress.seconds_total
        parts, waited = [progress.phase], monotonic() - self.since
        if progress.phase and waited >= _SILENT_SECONDS:
            parts.append(f"{format_seconds(waited)} so far")
        if left is not None and (total is None or left < total - progress.seconds - 1):
            parts.insert(0, f"done in about {format_seconds(left)}")
        status = [line(" · ".join(filter(None, parts)))] if any(parts) else []
        failures = [line((" ".join(text.split()), "yellow")) for text in self.failures]
        for text in (*status, *failures):
            text.no_wrap, text.overflow = True, "ellipsis"
        grid = Table.grid(padding=(0, 2), expand=True)
        for _ in range(4):
            grid.add_column(no_wrap=True)
        # On a narrow terminal, only this column becomes narrower.
        grid.add_column(no_wrap=True, style="dim", ratio=1)
        for trial in sorted(progress.running, key=lambda trial: -trial.seconds):
            step = f"{trial.step}, fold {trial.fold}" if trial.step else "starting"
            grid.add_row(
                f"trial {trial.number:>3}",
                step,
                f"{format_seconds(trial.seconds)} of {format_seconds(trial.limit_seconds)}",
                ProgressBar(trial.limit_seconds, trial.seconds, _BAR_WIDTH),
                printable(trial.path[-1]),
            )
        return Group(line(bold(progress.status_line())), *status, grid, *failures)


class _Terminal(_Silent):
    """Observer with live lines at the bottom and other output scrolling above the live lines."""

    def __init__(self, console: PlainConsole, lines: LiveLines) -> None:
        self._console, self._lines = console, lines

    def note(self, text: str) -> None:
        self._console.print(text, style="dim")

    def warn(self, text: str) -> None:
        self._console.print(f"Warning: {text}", style="yellow")

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Print failures and new incumbents, and update the live lines."""
        self._lines.show(progress)
        if trial.failure is not None:
            self._lines.failures.append(progress.trial_line(trial))
        if trial.failure is not None or progress.incumbent == trial:
            style = "yellow" if trial.failure else "green"
            self._console.print(progress.trial_line(trial), style=style)

    def tick(self, progress: Progress) -> None:
        self._lines.show(progress)


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


@contextmanager
def without_widget_warning() -> Iterator[None]:
    """Suppress tqdm's advice to install widgets, because no method shows progress bars."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")  # of tqdm, used by Optuna
        yield


class NotebookLine(Observer):
    """Observer with a single line: the state of the study and the latest note."""

    def __init__(self) -> None:
        self._status = ""
        self._handle: Any = None

    def note(self, text: str) -> None:
        """Show a note after the state of the study."""
        self._show(" · ".join(filter(None, (self._status, masked(text)))))

    def warn(self, text: str) -> None:
        """Print a warning, which stays visible."""
        print(f"Warning: {text}", file=sys.stderr)  # noqa: T201 - output of the cell

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """Show the state of the study."""
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        """Show the state of the study, if the state has changed."""
        if (line := progress.status_line()) != self._status:
            self._status = line
            self._show(line)

    def _show(self, line: str) -> None:
        shown = {"text/plain": line}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
