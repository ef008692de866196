"""Progress of a running study, on a terminal, in a log or in a notebook."""

import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from rich.live import Live

from prefect_tune.deployments.views.console import PlainConsole, echo, echo_as_is
from prefect_tune.deployments.views.live_lines import LiveLines
from prefect_tune.flows.progress import Observer, Progress
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.masking import masked, masked_values

_REFRESHES = 2
"""Refreshes of live lines per second."""


@contextmanager
def observer_for(*, quiet: bool, json_lines: bool) -> Iterator[Observer]:
    """Yield the observer for the output; live lines need a terminal with UTF-8."""
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


class _Silent:
    """Prints warnings only."""

    def note(self, text: str) -> None:
        """Print nothing."""

    def warn(self, text: str) -> None:
        echo(f"Warning: {text}", err=True)

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Print nothing."""

    def tick(self, progress: Progress) -> None:
        """Print nothing."""


class _Lines(_Silent):
    """One plain line per trial, to standard error."""

    def note(self, text: str) -> None:
        echo(text, err=True)

    def ended(self, trial: Trial, progress: Progress) -> None:
        echo(f"{progress.trial_line(trial)}  |  {progress.status_line()}", err=True)


class _JsonLines(_Silent):
    """One line of JSON per trial and per warning, to standard output."""

    def warn(self, text: str) -> None:
        echo_as_is(json.dumps({"warning": text}, separators=(",", ":")))

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        echo_as_is(json.dumps(masked_values(trial.to_json()), separators=(",", ":")))


class _Terminal(_Silent):
    """Live lines at the bottom; failures, new incumbents and notes scroll above them."""

    def __init__(self, console: PlainConsole, lines: LiveLines) -> None:
        self._console, self._lines = console, lines
        self._fidelity: str | None = None

    def note(self, text: str) -> None:
        self._console.print(text, style="dim")

    def warn(self, text: str) -> None:
        self._console.print(f"Warning: {text}", style="yellow")

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Print failures and new incumbents, and update the live lines."""
        if trial.failure is not None or progress.incumbent == trial:
            style = "yellow" if trial.failure else "green"
            self._console.print(progress.trial_line(trial), style=style)
        if trial.failure is not None:
            self._lines.fail(progress.trial_line(trial))
        self._note_fidelity(progress)
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        self._lines.show(progress)

    def _note_fidelity(self, progress: Progress) -> None:
        """Print a note when the fidelity of the incumbents changes, as losses may jump."""
        if progress.incumbent is None:
            return
        fidelity, before = progress.part(progress.incumbent), self._fidelity
        self._fidelity = fidelity
        if before is not None and before != fidelity:
            of = fidelity or "the full evaluation"
            self.note(f"the best loss now comes from {of}; it is not comparable with earlier ones")


def is_notebook() -> bool:
    """Return whether this process runs a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


@contextmanager
def without_widget_warning() -> Iterator[None]:
    """Suppress tqdm's advice to install widgets during the body, as no method shows bars."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")  # from tqdm, by Optuna
        yield


class NotebookLine:
    """One line with the state of the study and the latest note."""

    def __init__(self) -> None:
        self._standing = ""
        self._handle: Any = None

    def note(self, text: str) -> None:
        """Show a note after the state of the study."""
        self._show(" · ".join(filter(None, (self._standing, masked(text)))))

    def warn(self, text: str) -> None:
        """Print a warning, which stays."""
        print(f"Warning: {text}", file=sys.stderr)  # noqa: T201 - output of the cell

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """Show the state of the study."""
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        """Show the state of the study, if it has changed."""
        if (line := progress.status_line()) != self._standing:
            self._standing = line
            self._show(line)

    def _show(self, line: str) -> None:
        shown = {"text/plain": line}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
