"""The embedded server: a real Prefect server on loopback, one per home, shared by all runs there.

Whoever uses it holds a shared lock, which the system takes back when a process dies, however it
dies. The last one to leave stops the server; the next run takes over one that a kill orphaned.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep, time
from typing import IO
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import psutil
from platformdirs import user_cache_path

from prefect_tune.deployments.prefect_settings import SERVER_SETTINGS
from prefect_tune.flows.home import home

__all__ = ["Launched", "ServerFailed", "launched_server", "local_server", "prepare_template"]

_COMMAND = (sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1")
_UPGRADE = (sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y")
_CONFIGURING_VARIABLES = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")
_NOT_FOR_OURS = (
    "PREFECT_API_DATABASE_",
    "PREFECT_SERVER_DATABASE_",
    "PREFECT_LOGGING_",
    "PREFECT_PROFILE",
)
"""Variables of another server that must not lead ours to its database."""
_START_SECONDS = 180.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 2.0
_STARTED_HERE: dict[int, subprocess.Popen[bytes]] = {}
"""Servers that are children of this process, by their number."""


class ServerFailed(RuntimeError):  # noqa: N818 - it says what happened
    """The embedded server did not start; the message names its log."""


@contextmanager
def local_server(*, keep: bool = False) -> Iterator[str]:
    """Have a Prefect server for the body.

    The server that Prefect's settings or profile name is used as it is. Without one, the embedded
    server of this home is started, or shared when it runs already, and stopped by its last user.

    Args:
        keep: Leave the embedded server up; the next run that does not, stops it.

    Yields:
        The server's API URL.

    Raises:
        ServerFailed: If it does not start.
    """
    with launched_server(keep=keep) as server:
        server.wait()
        yield server.url


@contextmanager
def launched_server(*, keep: bool = False) -> Iterator["Launched"]:
    """What `local_server` does, without waiting until the server answers."""
    with ExitStack() as embedded:
        early = None if _may_be_configured() else embedded.enter_context(_embedded(keep=keep))
        # Importing Prefect takes seconds, in which the server can start.
        from prefect.settings import (  # noqa: PLC0415
            PREFECT_API_URL,
            get_current_settings,
            temporary_settings,
        )

        configured = get_current_settings().api.url
        if configured:
            embedded.close()
            yield Launched(configured, None)
            return
        server = early or embedded.enter_context(_embedded(keep=keep))
        with temporary_settings({PREFECT_API_URL: server.url}):
            try:
                yield server
            finally:
                _drain()


@contextmanager
def _embedded(*, keep: bool) -> Iterator["Launched"]:
    folder = home() / "server"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServerFailed(
            f"the home of prefect-tune, {home()}, cannot be written: {error}; set "
            "PREFECT_TUNE_HOME to a folder that can"
        ) from error
    with (folder / "users.lock").open("w") as users:
        with _exclusive(folder / "start.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)
            server = _running(folder) or _start(folder)
        ended = Event()
        guard = Thread(target=_keep_up, args=(folder, ended), daemon=True, name="server guard")
        guard.start()
        try:
            yield Launched(server.url, folder)
        finally:
            ended.set()
            guard.join()
            with _exclusive(folder / "start.lock"):
                fcntl.flock(users, fcntl.LOCK_UN)
                if not keep and _is_unused(users):
                    _stop(folder)


def _keep_up(folder: Path, ended: Event) -> None:
    """Start a server that was killed again, at its address: clients try for a minute."""
    while not ended.wait(_LOOK_SECONDS):
        server = _noted(folder)
        if server is None or server.process is not None:
            continue
        with _exclusive(folder / "start.lock"):
            server = _noted(folder)
            if server is not None and server.process is None:
                _start(folder, server.port)


def _may_be_configured() -> bool:
    """Whether there is any place where Prefect might find the address of a server.

    Only a quick look; Prefect itself has the last word.
    """
    if any(os.environ.get(name) for name in _CONFIGURING_VARIABLES):
        return True
    prefect_home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    files = (prefect_home / "profiles.toml", *map(Path, (".env", "prefect.toml", "pyproject.toml")))
    return any(f.is_file() and "prefect" in f.read_text("utf-8", "replace").lower() for f in files)


@dataclass(frozen=True, slots=True)
class Launched:
    """A server that may still be starting.

    Attributes:
        url: Its API URL.
        folder: Folder of the embedded server; None for another one.
    """

    url: str
    folder: Path | None

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            ServerFailed: If it has died, or does not answer in three minutes.
        """
        since = monotonic()
        while self.folder is not None and not _answers(self.url):
            server = _noted(self.folder)
            if server is None or server.process is None or monotonic() - since > _START_SECONDS:
                log = self.folder / "server.log"
                raise ServerFailed(
                    f"the Prefect server did not start; its log {log} ends with:\n"
                    + "\n".join(log.read_text().splitlines()[-8:])
                )
            sleep(0.1)


def _drain() -> None:
    """Send what this process has not told the server, if it has told it anything."""
    if "prefect_tune.tasks.worker.dask_runner" in sys.modules:
        from prefect_tune.tasks.worker.dask_runner import drain_events  # noqa: PLC0415 - heavy

        drain_events()


@dataclass(frozen=True, slots=True)
class _Server:
    """A server process, told apart from any other that ever had its number."""

    pid: int
    started: float
    url: str

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    @property
    def process(self) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            is_same = abs(process.create_time() - self.started) < 1
        except psutil.NoSuchProcess:
            return None
        return process if is_same and process.status() != psutil.STATUS_ZOMBIE else None


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_unused(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _noted(folder: Path) -> _Server | None:
    try:
        return _Server(**json.loads((folder / "server.json").read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _running(folder: Path) -> _Server | None:
    """The server that runs already; one that had its time and does not answer is stopped."""
    server = _noted(folder)
    if server is None or server.process is None:
        return None
    if time() - server.started < _START_SECONDS or _answers(server.url):
        return server
    _stop(folder)
    return None


def _start(folder: Path, port: int | None = None) -> _Server:
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}/api"
    _lay_database(folder)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_FOR_OURS)}
    environment |= {
        **SERVER_SETTINGS,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{folder / 'prefect.db'}",
    }
    log = folder / "server.log"
    with log.open("w") as output:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*_COMMAND, "--port", str(port)],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _STARTED_HERE[process.pid] = process
    server = _Server(process.pid, psutil.Process(process.pid).create_time(), url)
    (folder / "server.json").write_text(json.dumps(asdict(server)))
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _lay_database(folder: Path) -> None:
    """Put an empty database with all tables into a new home, if this machine has made one before.

    Prefect's migrations take ten seconds to build the same tables every time.
    """
    database, template = folder / "prefect.db", _template()
    if not database.exists() and template.exists():
        shutil.copyfile(template, database)


def prepare_template() -> None:
    """Make the empty database that new homes on this machine begin with, if it is not there."""
    template = _template()
    if template.exists():
        return
    template.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=template.parent) as folder:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_FOR_OURS)}
        environment |= {**SERVER_SETTINGS, "PREFECT_HOME": folder}
        subprocess.run(_UPGRADE, env=environment, check=True, capture_output=True)  # noqa: S603
        # Everything that SQLite's log still holds goes into the one file that is copied.
        with closing(sqlite3.connect(Path(folder) / "prefect.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("PRAGMA journal_mode=DELETE")
        (Path(folder) / "prefect.db").replace(template)


def _template() -> Path:
    return user_cache_path("prefect-tune") / f"prefect-{version('prefect')}.db"


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health", timeout=10) as response:  # noqa: S310 - our own loopback URL
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def _stop(folder: Path) -> None:
    """End the server and all that it started, gently first."""
    server = _noted(folder)
    process = server.process if server else None
    if server is not None and process is not None:
        family = [process, *process.children(recursive=True)]
        # One that does not answer yet has nothing to finish.
        os.killpg(process.pid, signal.SIGTERM if _answers(server.url) else signal.SIGKILL)
        _, alive = psutil.wait_procs(family, timeout=_STOP_SECONDS)
        for survivor in alive:
            survivor.kill()
        psutil.wait_procs(alive, timeout=_STOP_SECONDS)
        if started := _STARTED_HERE.pop(process.pid, None):
            started.wait()
    (folder / "server.json").unlink(missing_ok=True)
