"""The process of the embedded server: start it, find it in the next run, and stop it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import psutil

from prefect_tune.deployments.server.empty_database import (
    has_block_types,
    note_block_types,
    seed_database,
)
from prefect_tune.deployments.server.locks import made_secret, private_file, set_kept
from prefect_tune.deployments.server.prefect_settings import server_environment
from prefect_tune.storage.local_files import atomic_file

START_SECONDS = 180.0
"""Longest time until a new server answers."""
_STOP_SECONDS = 30.0
_TICK_SECONDS = 0.02
_LOOKS = 3
"""Number of checks without an answer after which a server is replaced."""
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

    def find(self) -> psutil.Process | None:
        """Return the process; None if it has ended."""
        from prefect_tune.storage.lease import process_start  # noqa: PLC0415 - see `start_server`

        try:
            process = psutil.Process(self.pid)
            is_same = process_start(self.pid) == self.started
        except psutil.NoSuchProcess:
            return None
        return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None

    def answers(self) -> bool:
        """Return whether this process answers at its URL; an impostor would learn the secret."""
        process = self.find()
        try:
            found = process.net_connections("tcp4") if process else []
        except psutil.NoSuchProcess:
            return False
        listens = any(c.status == psutil.CONN_LISTEN and c.laddr.port == self.port for c in found)
        return listens and _is_healthy(self.url)


def noted_server(folder: Path) -> ServerProcess | None:
    """Return the server last started in a folder, running or not."""
    try:
        return ServerProcess(**json.loads((folder / _NOTE).read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def running_server(folder: Path) -> ServerProcess | None:
    """Return the running server of a folder; stop one that does not answer in time."""
    server = noted_server(folder)
    if server is None or server.find() is None:
        return None
    from prefect_tune.storage.lease import process_age  # noqa: PLC0415 - see `start_server`

    if process_age(server.pid) < START_SECONDS or any(server.answers() for _ in range(_LOOKS)):
        return server
    stop_server(folder)
    return None


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
    # Importing SQLAlchemy would delay the start.
    from prefect_tune.storage.lease import process_start  # noqa: PLC0415

    server = ServerProcess(process.pid, process_start(process.pid), url, with_events)
    with atomic_file(folder / _NOTE) as aside, private_file(aside) as note:
        note.write(json.dumps(asdict(server)))
    return server


def stop_server(folder: Path) -> None:
    """Stop the server of a folder and its child processes, gracefully first."""
    server = noted_server(folder)
    process = server.find() if server else None
    if server is not None and process is not None:
        family = [process, *process.children(recursive=True)]
        answers = server.answers()
        if answers:
            note_block_types(folder)  # created before the server listens
        # A server that does not answer yet has nothing to finish.
        os.killpg(process.pid, signal.SIGTERM if answers else signal.SIGKILL)
        alive = _still_running(family)
        for survivor in alive:
            survivor.kill()
        _still_running(alive)
        if started := _STARTED_HERE.pop(process.pid, None):
            started.wait()
    (folder / _NOTE).unlink(missing_ok=True)
    set_kept(folder, kept=False)


def _still_running(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Wait for processes to end; return those still running after a timeout.

    A zombie has ended: its parent may be a notebook that lives for days.
    """
    until = monotonic() + _STOP_SECONDS
    alive = list(filter(_runs, processes))
    while alive and monotonic() < until:
        sleep(_TICK_SECONDS)
        alive = list(filter(_runs, alive))
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


_WITHOUT_PROXY = build_opener(ProxyHandler({}))


def _is_healthy(url: str) -> bool:
    try:
        with _WITHOUT_PROXY.open(f"{url}/health", timeout=10) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
