"""The process of the embedded server: start it, find it in the next run, and stop it."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import psutil

from prefect_tune.deployments.server.empty_database import (
    has_block_types,
    note_block_types,
    seed_database,
)
from prefect_tune.deployments.server.locks import kept_file, made_secret, private_file
from prefect_tune.deployments.server.prefect_settings import server_environment
from prefect_tune.storage.local_files import atomic_file
from prefect_tune.storage.processes import is_running, process_start

_STOP_SECONDS = 30.0
_TICK_SECONDS = 0.02
_NOTE = "server.json"
_COMMAND = (sys.executable, "-m", "prefect_tune.deployments.server.guarded")
_WITHOUT_BLOCK_TYPES = {
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    # Checking for changes would import all collections.
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
}
"""Settings for a server with registered block types."""
_STARTED_HERE: dict[int, subprocess.Popen[bytes]] = {}
"""Servers that are children of this process, by process id."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server process, identified by process id and `process_start`, and its API URL."""

    pid: int
    started: float
    url: str
    has_events: bool = False
    """Whether it records events and fires automations."""

    @property
    def port(self) -> int:
        """The port of the API."""
        return urlsplit(self.url).port or 0

    def runs(self) -> bool:
        """Return whether the process runs."""
        return is_running(self.pid, self.started)

    def answers(self) -> bool:
        """Return whether this process answers at its URL; an impostor would learn the secret."""
        found = []
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.pid).net_connections("tcp4")
        listens = any(c.status == psutil.CONN_LISTEN and c.laddr.port == self.port for c in found)
        return self.runs() and listens and _is_healthy(self.url)


def noted_server(folder: Path) -> ServerProcess | None:
    """Return the server last started in a folder, running or not."""
    with suppress(FileNotFoundError, ValueError, TypeError):
        return ServerProcess(**json.loads((folder / _NOTE).read_text()))
    return None


def running_server(folder: Path) -> ServerProcess | None:
    """Return the running server of a folder, which may still be starting."""
    server = noted_server(folder)
    return server if server is not None and server.runs() else None


def start_server(
    folder: Path, port: int | None = None, *, with_events: bool = False
) -> ServerProcess:
    """Start a server in a folder, on a given or free port, without waiting for an answer."""
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}/api"
    seed_database(folder)
    environment = {
        "PREFECT_SERVER_API_AUTH_STRING": made_secret(folder),
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": url.removesuffix("/api"),
        "PREFECT_UI_API_URL": url,
    }
    if has_block_types(folder):
        environment |= _WITHOUT_BLOCK_TYPES
    with private_file(folder / "server.log") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*_COMMAND, str(folder), str(port)],
            env=server_environment(folder, with_events=with_events) | environment,
            cwd=folder,  # of the database; Prefect settings elsewhere are for other servers
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _STARTED_HERE[process.pid] = process
    server = ServerProcess(process.pid, process_start(process.pid), url, with_events)
    with atomic_file(folder / _NOTE) as aside, private_file(aside) as note:
        note.write(json.dumps(asdict(server)))
    return server


def stop_server(folder: Path) -> None:
    """Stop the server of a folder and its child processes, gracefully first."""
    server = noted_server(folder)
    if server is not None and server.runs():
        answers = server.answers()
        if answers:
            note_block_types(folder)  # created before the server listens
        # A server that does not answer yet has nothing to finish.
        os.killpg(server.pid, signal.SIGTERM if answers else signal.SIGKILL)
        until = monotonic() + _STOP_SECONDS
        while server.runs() and monotonic() < until:
            sleep(_TICK_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        if started := _STARTED_HERE.pop(server.pid, None):
            started.wait()
    (folder / _NOTE).unlink(missing_ok=True)
    kept_file(folder).unlink(missing_ok=True)


_WITHOUT_PROXY = build_opener(ProxyHandler({}))


def _is_healthy(url: str) -> bool:
    with suppress(OSError), _WITHOUT_PROXY.open(f"{url}/health", timeout=10) as response:
        return bool(response.status == 200)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
