"""Studies in benchmarks, whose output is their own."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect_tune.deployments.server.embedded import local_server
from prefect_tune.deployments.server.prefect_settings import QUIET_CONSOLE, set_defaults
from prefect_tune.flows.study.progress import Progress, observed_by
from prefect_tune.optimizers import Trial

__all__ = ["Silent", "silent_studies"]


class Silent:
    """Observer that says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing."""

    def tick(self, progress: Progress) -> None:
        """Nothing."""

    def ended(self, trial: Trial, progress: Progress) -> None:
        """Nothing."""


@contextmanager
def silent_studies(home: Path) -> Iterator[None]:
    """Run the studies of the body in this process, with a server and a home of their own."""
    home.mkdir(parents=True, exist_ok=True)
    os.environ["PREFECT_TUNE_HOME"] = str(home.absolute())
    set_defaults(QUIET_CONSOLE)
    with local_server(), observed_by(Silent()):
        yield
