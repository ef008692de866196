"""`prefect-tune serve` in a separate process, and flow runs of its deployments."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
from prefect.client.schemas.objects import FlowRun, State
from prefect_api import client_of
from processes import COMMAND, environment, server_of

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger


class Served:
    """The served deployments of a home."""

    def __init__(self, server: str, home: Path, process: subprocess.Popen[str]) -> None:
        self.server, self.home, self.process = server, home, process

    @classmethod
    @contextmanager
    def at(cls, server: str | None, home: Path) -> Iterator["Served"]:
        """Serve deployments until a test stops them, by default on the server of the home."""
        process = subprocess.Popen(
            [*COMMAND, "serve"],
            env={**environment(home, server), "PREFECT_RUNNER_POLL_FREQUENCY": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            lines = [process.stderr.readline()]
            while "prefect deployment run" not in lines[-1]:
                assert lines[-1], "".join(lines)
                lines.append(process.stderr.readline())
            yield cls(server or server_of(home)["url"], home, process)  # type: ignore[index]
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=240)
            process.stderr.close()

    def start(self, deployment: str, **parameters: Any) -> UUID:
        """Start a flow run of a deployment."""
        with client_of(self.server) as client:
            found = client.read_deployment_by_name(deployment)
            run = client.create_flow_run_from_deployment(found.id, parameters=parameters)
        return run.id

    def run(self, flow_run_id: UUID) -> FlowRun:
        with client_of(self.server) as client:
            return client.read_flow_run(flow_run_id)

    def set_state(self, flow_run_id: UUID, state: State[Any]) -> None:
        with client_of(self.server) as client:
            client.set_flow_run_state(flow_run_id, state, force=True)

    def resume(self, flow_run_id: UUID) -> None:
        with client_of(self.server) as client:
            client.resume_flow_run(flow_run_id)

    @property
    def ledger(self) -> Ledger:
        return Ledger(ArtifactStore(StoreAddress(str(self.home / "store"))).database)

    def state(self, study: str) -> str:
        stored = self.ledger.study(study)
        return "" if stored is None else stored.state

    def trials(self, study: str) -> list[dict[str, Any]]:
        if not (self.home / "store" / "index.sqlite").exists():
            return []
        return [dict(trial) for trial in self.ledger.trials(study)]

    def n_told(self, study: str) -> int:
        return sum(trial["state"] in ("complete", "failed") for trial in self.trials(study))

    def n_running(self, study: str) -> int:
        return sum(trial["state"] == "running" for trial in self.trials(study))

    def family(self) -> list[psutil.Process]:
        """Return the processes of running flow runs."""
        server = server_of(self.home) or {"pid": None}
        found: list[psutil.Process] = []
        for child in psutil.Process(self.process.pid).children():
            if child.pid != server["pid"]:
                with suppress(psutil.NoSuchProcess):
                    found += [child, *child.children(recursive=True)]
        return found
