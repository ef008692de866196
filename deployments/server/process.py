"""Starting, finding and stopping the process of the private server."""

import fcntl
import json
import os
import secrets
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import IO
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

import psutil

from prefect_tune.deployments.server.empty_database import (
    has_block_types,
    note_block_types,
    seed_database,
)
from prefect_tune.deployments.server.prefect_settings import server_environment
from prefect_tune.storage.local_files import atomic_file
from prefect_tune.storage.processes import is_running, process_start


def users_file(folder: Path) -> IO[str]:
    """Open the lock file (`fcntl.flock`) that processes lock while they use the server."""
    return private_file(folder / "users.lock")


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the lock that is needed to start or stop the server."""
    with private_file(folder / "start.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_unused(users: IO[str]) -> bool:
    """Return whether no other process uses the server; if none does, lock `users`."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def kept_file(folder: Path) -> Path:
    """Return the path of the file whose existence keeps an unused server running."""
    return folder / "kept"


def private_file(path: Path) -> IO[str]:
    """Create or empty a file that only its owner can read, and open the file for writing."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w")


def secret_file(folder: Path) -> Path:
    """Return the path of the file that holds the server's secret."""
    return folder / "auth"


def made_secret(folder: Path) -> str:
    """Return the secret for a new server, replacing any secret that other users could read."""
    file = secret_file(folder)
    if not file.exists() or file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        file.unlink(missing_ok=True)
        with private_file(file) as new:
            new.write(f"prefect-tune:{secrets.token_urlsafe(32)}\n")
    return read_secret(folder)


def read_secret(folder: Path) -> str:
    """Return the secret of the running server, as `user:password`."""
    return secret_file(folder).read_text().strip()


_STOP_SECONDS = 30.0
_TICK_SECONDS = 0.02
_NOTE = "server.json"
_COMMAND = (sys.executable, "-m", "prefect_tune.deployments.server.guarded")
_WITHOUT_CHANGES = {
    "PREFECT_API_DATABASE_MIGRATE_ON_START": "false",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "false",
    # A check for changes would import all collections.
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",
}
"""Settings for a server whose database is complete."""
_STARTED_HERE: dict[int, subprocess.Popen[bytes]] = {}
"""Servers that are children of this process, by process id."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server process, identified by process id and start time, with the URL of its API."""

    pid: int
    started: float
    url: str
    has_events: bool = False
    """Whether the server records events and fires automations."""

    @property
    def port(self) -> int:
        """Port of the server's API."""
        return urlsplit(self.url).port or 0

    def runs(self) -> bool:
        """Return whether the server process is running."""
        return is_running(self.pid, self.started)

    def answers(self) -> bool:
        """Return whether this process answers at the URL; no other process may get the secret."""
        found = []
        with suppress(psutil.NoSuchProcess):
            found = psutil.Process(self.pid).net_connections("tcp4")
        listens = any(c.status == psutil.CONN_LISTEN and c.laddr.port == self.port for c in found)
        if not (self.runs() and listens):
            return False
        opened = build_opener(ProxyHandler({})).open
        with suppress(OSError), opened(f"{self.url}/health", timeout=10) as response:
            return bool(response.status == 200)
        return False


def noted_server(folder: Path) -> ServerProcess | None:
    """Return the server that was last started in a folder, running or not."""
    with suppress(FileNotFoundError, ValueError, TypeError):
        return ServerProcess(**json.loads((folder / _NOTE).read_text()))
    return None


def running_server(folder: Path) -> ServerProcess | None:
    """Return the server of a folder if the server is running or starting; otherwise None."""
    server = noted_server(folder)
    return server if server is not None and server.runs() else None


def start_server(
    folder: Path, port: int | None = None, *, with_events: bool = False
) -> ServerProcess:
    """Start a server in a folder, on a given or free port, without waiting for an answer."""
    if port is None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))  # binds to a free port
            port = int(probe.getsockname()[1])
    url = f"http://127.0.0.1:{port}/api"
    seed_database(folder)
    environment = {
        "PREFECT_SERVER_API_AUTH_STRING": made_secret(folder),
        "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": url.removesuffix("/api"),
        "PREFECT_UI_API_URL": url,
    }
    if has_block_types(folder):
        environment |= _WITHOUT_CHANGES
    with private_file(folder / "server.log") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*_COMMAND, str(folder), str(port)],
            env=server_environment(folder, with_events=with_events) | environment,
            cwd=folder,  # folder of the database, and free of settings for other servers
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _STARTED_HERE[process.pid] = process
    server = ServerProcess(process.pid, process_start(process.pid), url, with_events)
    with atomic_file(folder / _NOTE) as temporary, private_file(temporary) as note:
        note.write(json.dumps(asdict(server)))
    return server


def stop_server(folder: Path) -> None:
    """Stop the server of a folder and its child processes, first gracefully, then by force."""
    server = noted_server(folder)
    if server is not None and server.runs():
        answers = server.answers()
        if answers:
            note_block_types(folder)  # block types exist before the server listens
        # A server that has never answered has no work to finish.
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
