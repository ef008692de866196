"""A Dask scheduler with externally started workers, in separate processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from processes import wait_for

__all__ = ["ExternalCluster", "external_cluster"]

OPTIONS = ("--nanny", "--nthreads", "1")
"""Those that workers of ours need."""


@dataclass
class ExternalCluster:
    """A scheduler, and the commands that started the scheduler and the workers."""

    folder: Path
    variables: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def note(self) -> Path:
        """The file with the address of the scheduler."""
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        return str(json.loads(self.note.read_text())["address"])

    def start_scheduler(self) -> None:
        """Start the scheduler, and wait for its first answer."""
        self._start("scheduler", "--port", "0")
        wait_for(lambda: self.note.exists() and self.note.read_text().endswith("}"))

    def start_worker(self, *options: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a worker with options in an environment with these variables."""
        return self._start("worker", *(options or OPTIONS), **variables)

    def stop(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        """Kill some of the processes with all their children."""
        for process in processes:
            self.processes.remove(process)
            with suppress(psutil.NoSuchProcess):
                for member in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        member.kill()
            process.kill()
            process.wait()

    def _start(self, what: str, *options: str, **variables: str) -> subprocess.Popen[bytes]:
        command = ["dask", what, "--scheduler-file", str(self.note), "--no-dashboard", *options]
        with (self.folder / f"{what}-{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **self.variables, **variables},
            )
        self.processes.append(process)
        return process


@contextmanager
def external_cluster(folder: Path, **variables: str) -> Iterator[ExternalCluster]:
    """Yield a cluster without workers, in an environment with these variables."""
    folder.mkdir(exist_ok=True)
    external = ExternalCluster(folder, variables)
    try:
        external.start_scheduler()
        yield external
    finally:
        external.stop([*external.processes])
