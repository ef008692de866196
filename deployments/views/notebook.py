"""Progress of a study in a notebook: one line of the cell's output that changes."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from prefect_tune.deployments.views.standing import standing
from prefect_tune.flows.progress import Progress
from prefect_tune.optimizers.trials.trial import Trial
from prefect_tune.storage.privacy.masking import masked

__all__ = ["NotebookLine", "is_notebook", "widgets_spared"]


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
        if (line := standing(progress)) != self._standing:
            self._standing = line
            self._show(line)

    def _show(self, line: str) -> None:
        shown = {"text/plain": line}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)
