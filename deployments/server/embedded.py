"""The private server: a Prefect server on loopback, shared by all runs of a home folder.

Each process that uses the server holds a shared lock, which the system releases when the process
ends for any reason. The last process that uses the server stops the server. If the last process was
killed, the server ends by itself.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shlex import quote
from time import monotonic, sleep

from prefect_tune.deployments.server.process import (
    exclusive,
    is_unused,
    kept_file,
    noted_server,
    read_secret,
    running_server,
    secret_file,
    start_server,
    stop_server,
    users_file,
)
from prefect_tune.flows.options.store_location import home
from prefect_tune.storage.local_files import make_private
from prefect_tune.storage.waiting import Heartbeat

_CONFIGURING_VARIABLES = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")
_CONFIGURING_FILES = {
    Path(".env"): "prefect",
    Path("prefect.toml"): "prefect",
    Path("pyproject.toml"): "tool.prefect",
}
"""Files in the current folder that may configure Prefect if they contain the given text."""
_LOOK_SECONDS = 2.0
"""Pause between two checks that the server is running."""
_START_SECONDS = 180.0
"""Maximum time until a new server answers."""


class ServerFailed(RuntimeError):  # noqa: N818 - the name states the event
    """The private server did not start. The message names the server's log file."""


@contextmanager
def local_server(*, keep: bool = False) -> Iterator[str]:
    """Provide a Prefect server during the `with` block; yield the URL of the server's API.

    If Prefect's settings or profile name a server, the named server is used. Without a named
    server, the private server of the home folder is started or, if already running, shared. The
    last process that uses the private server stops the server, unless `keep` is true.

    Raises:
        ServerFailed: If the private server does not start.
    """
    with launched_server(keep=keep) as server:
        server.wait()
        yield server.url


@contextmanager
def launched_server(*, keep: bool = False, with_events: bool = False) -> Iterator["Launched"]:
    """Provide a server like `local_server`, without waiting until the server answers.

    `with_events` requests a server that records events and fires automations. If the private server
    runs without event services, the server is restarted unless another process uses it; see
    `Launched.has_events`.
    """
    if "prefect.settings" in sys.modules or may_be_configured():
        from prefect.settings import get_current_settings  # noqa: PLC0415 - takes seconds

        if configured := get_current_settings().api.url:
            yield Launched(configured)
            return
    with _embedded(keep=keep, with_events=with_events) as server:
        # The server starts while Prefect is imported, which takes seconds.
        from prefect.settings import (  # noqa: PLC0415
            PREFECT_API_AUTH_STRING,
            PREFECT_API_URL,
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
            temporary_settings,
        )

        ours = {
            PREFECT_API_URL: server.url,
            PREFECT_API_AUTH_STRING: read_secret(home() / "server"),
            # The private server needs no heartbeats, which would delay each flow run by a second.
            PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        }
        with temporary_settings(ours):
            try:
                yield server
            finally:  # sends pending events of this process, if any
                if "prefect_tune.tasks.sandbox.dask_runner" in sys.modules:
                    from prefect_tune.flows.running.event_loop import (  # noqa: PLC0415 - heavy
                        apart_from_loop,
                    )
                    from prefect_tune.tasks.sandbox.dask_runner import (  # noqa: PLC0415 - heavy
                        drain_events,
                    )

                    apart_from_loop(drain_events)


@contextmanager
def joined_server() -> Iterator[None]:
    """Use the configured server or a running private server, without starting a server."""
    if may_be_configured() or running_server(home() / "server") is None:
        yield
        return
    with launched_server() as server:
        server.wait()
        yield


@contextmanager
def _embedded(*, keep: bool, with_events: bool) -> Iterator["Launched"]:
    folder = home() / "server"
    try:
        make_private(home())
        make_private(folder)
    except OSError as error:
        raise ServerFailed(
            f"the home of prefect-tune, {home()}, cannot be written: {error}; set "
            "PREFECT_TUNE_HOME to a writable folder"
        ) from error
    with _loopback_without_proxy(), users_file(folder) as users:
        with exclusive(folder):
            server = running_server(folder)
            if server is not None and with_events and not server.has_events and is_unused(users):
                stop_server(folder)
                server = None
            fcntl.flock(users, fcntl.LOCK_SH)
            server = server or start_server(folder, with_events=with_events)
            if keep:
                kept_file(folder).touch(mode=0o600)
        guard = ExitStack()
        try:
            yield Launched(server.url, folder, guard, has_events=server.has_events)
        finally:
            guard.close()
            with exclusive(folder):
                fcntl.flock(users, fcntl.LOCK_UN)
                if not keep and is_unused(users):
                    stop_server(folder)


@contextmanager
def _loopback_without_proxy() -> Iterator[None]:
    """Send requests to this machine, which contain the secret, without a proxy.

    The setting lasts for the `with` block, and is inherited by processes started in the block.
    """
    before = {name: os.environ.get(name) for name in ("no_proxy", "NO_PROXY")}
    hosts = before["no_proxy"] or before["NO_PROXY"]
    os.environ |= dict.fromkeys(before, ",".join(filter(None, [hosts, "127.0.0.1,localhost"])))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def _restart_if_killed(folder: Path) -> None:
    """Restart a killed server at the same address. Clients retry requests for a minute."""
    server = noted_server(folder)
    if server is None or server.runs():
        return
    with exclusive(folder):
        server = noted_server(folder)
        if server is not None and not server.runs():
            start_server(folder, server.port, with_events=server.has_events)


def may_be_configured() -> bool:
    """Return whether a server may be configured, without the slow import of Prefect."""
    if any(os.environ.get(name) for name in _CONFIGURING_VARIABLES):
        return True
    prefect_home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    named = {prefect_home / "profiles.toml": "prefect", **_CONFIGURING_FILES}
    return any(
        file.is_file() and word in file.read_text("utf-8", "replace").lower()
        for file, word in named.items()
    )


@dataclass(frozen=True, slots=True)
class Launched:
    """A server that may still be starting. `folder` is None unless the server is private."""

    url: str
    folder: Path | None = None
    guard: ExitStack = field(default_factory=ExitStack)
    has_events: bool = True  # assumed for servers other than the private server

    @property
    def shown(self) -> str:
        """Address of the Prefect UI, and instructions to sign in."""
        address = self.url.removesuffix("/api")
        if self.folder is None:
            return address
        return f"{address} (to sign in, enter the output of: cat {secret_file(self.folder)})"

    @property
    def exports(self) -> str:
        """Shell commands that make `prefect` use the server in another shell."""
        named = f"export PREFECT_API_URL={self.url}"
        if self.folder is None:
            return named
        file = quote(str(secret_file(self.folder)))
        return f'{named} PREFECT_API_AUTH_STRING="$(cat {file})"'

    def wait(self) -> None:
        """Wait until the server answers; afterwards, restart the server whenever it is killed.

        Raises `ServerFailed` if the server ends or does not answer within 3 minutes.
        """
        until = monotonic() + _START_SECONDS
        while self.folder is not None:
            server = running_server(self.folder)
            if server is not None and server.answers():
                # No thread may start earlier, because only a single-threaded process can fork the
                # zygote.
                restart = partial(_restart_if_killed, self.folder)
                outage = "the Prefect server could not be restarted"
                self.guard.callback(Heartbeat("server", restart, _LOOK_SECONDS, outage).stop)
                return
            if server is None or monotonic() > until:
                log = self.folder / "server.log"
                raise ServerFailed(
                    f"the Prefect server did not start; its log {log} ends with:\n"
                    + "\n".join(log.read_text().splitlines()[-8:])
                )
            sleep(0.1)


def task_run_page(task_run_id: str | None) -> str | None:
    """Return the address of a task run's page without asking the server; None if unknown."""
    if not task_run_id:
        return None
    pages = os.environ.get("PREFECT_UI_URL")
    if not pages and may_be_configured():
        from prefect.settings import get_current_settings  # noqa: PLC0415 - takes seconds

        settings = get_current_settings()
        pages = settings.ui_url or settings.api.url
    if not pages and (server := running_server(home() / "server")):
        pages = server.url
    pages = pages and pages.rstrip("/").removesuffix("/api")
    return f"{pages}/runs/task-run/{task_run_id}" if pages else None
