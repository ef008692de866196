"""Progress of a running study, on a terminal, in a log and in a notebook."""

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
"""Of live lines in a second."""


@contextmanager
def observer_for(*, quiet: bool, json_lines: bool) -> Iterator[Observer]:
    """Yield the observer that fits the output: a terminal, a pipe, JSON, or none.

    Live lines need UTF-8; a terminal with another encoding gets plain lines.
    """
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
    """Says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Print one line to standard error: a warning is no progress."""
        echo(f"Warning: {text}", err=True)

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Nothing."""

    def tick(self, progress: Progress) -> None:
        """Nothing."""


class _Lines(_Silent):
    """One plain line per trial, to standard error."""

    def note(self, text: str) -> None:
        """Print one line."""
        echo(text, err=True)

    def ended(self, trial: Trial, progress: Progress) -> None:
        """One line."""
        echo(f"{progress.trial_line(trial)}  |  {progress.status_line()}", err=True)


class _JsonLines(_Silent):
    """One line of JSON per trial and per warning, to standard output."""

    def warn(self, text: str) -> None:
        """One line."""
        echo_as_is(json.dumps({"warning": text}, separators=(",", ":")))

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """One line."""
        echo_as_is(json.dumps(masked_values(trial.to_json()), separators=(",", ":")))


class _Terminal(_Silent):
    """Live lines that stay at the bottom; failures, new incumbents and notes scroll above them."""

    def __init__(self, console: PlainConsole, lines: LiveLines) -> None:
        self._console, self._lines = console, lines
        self._fidelity: str | None = None

    def note(self, text: str) -> None:
        """Print one line above the others."""
        self._console.print(text, style="dim")

    def warn(self, text: str) -> None:
        """Print one line above the others."""
        self._console.print(f"Warning: {text}", style="yellow")

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Failures and new incumbents scroll by; the lines change."""
        if trial.failure is not None or progress.incumbent == trial:
            style = "yellow" if trial.failure else "green"
            self._console.print(progress.trial_line(trial), style=style)
        if trial.failure is not None:
            self._lines.fail(progress.trial_line(trial))
        self._note_fidelity(progress)
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        """Change the lines."""
        self._lines.show(progress)

    def _note_fidelity(self, progress: Progress) -> None:
        """Say when incumbents ran more or less of the evaluation than before: losses may jump."""
        if progress.incumbent is None:
            return
        fidelity, before = progress.part(progress.incumbent), self._fidelity
        self._fidelity = fidelity
        if before is not None and before != fidelity:
            of = fidelity or "the whole evaluation"
            self.note(f"the best loss is now of {of}, and not to be compared with those before")


def is_notebook() -> bool:
    """Return whether this process runs the cells of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


@contextmanager
def widgets_spared() -> Iterator[None]:
    """Leave out the advice to install widgets, for bars that no method shows, in the body."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")  # tqdm's, by Optuna
        yield


class NotebookLine:
    """One line: where the study stands, and the last note on it since then."""

    def __init__(self) -> None:
        self._standing = ""
        self._handle: Any = None

    def note(self, text: str) -> None:
        """Show a note behind where the study stands."""
        self._show(" · ".join(filter(None, (self._standing, masked(text)))))

    def warn(self, text: str) -> None:
        """Print a warning, which stays."""
        print(f"Warning: {text}", file=sys.stderr)  # noqa: T201 - output of the cell

    def ended(self, trial: Trial, progress: Progress) -> None:  # noqa: ARG002
        """Show where the study stands."""
        self.tick(progress)

    def tick(self, progress: Progress) -> None:
        """Show where the study stands, if that is another line."""
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
