"""The command line in a separate process, observed and killed by tests."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil

SECRETS: dict[str, str] = {}
"""Those of the embedded servers that tests have looked for, by their URLs."""
COMMAND = (sys.executable, "-m", "prefect_tune.deployments")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def run(
    *arguments: object, home: Path, server: str | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run `prefect-tune` to its end."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=environment(home, server),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        **options,
    )


def run_python(program: str, *arguments: object, **options: Any) -> str:
    """Return the standard output of a program."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], **options,
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_json(*arguments: object, home: Path, server: str | None = None) -> Any:
    """Return the output of `prefect-tune ... --json`."""
    done = run(*arguments, "--json", home=home, server=server)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@contextmanager
def started(
    *arguments: object, home: Path, server: str | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start `prefect-tune`; at the end, kill it with all its processes if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment(home, server),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            for member in (*psutil.Process(process.pid).children(recursive=True), process):
                member.kill()
        process.communicate()


def environment(home: Path, server: str | None = None) -> dict[str, str]:
    """Return the environment of a user: as before the tests, with this home and server."""
    ours = ("PREFECT_", "PYTHONDONTWRITEBYTECODE", "OMP_", "OPENBLAS_", "MKL_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    named = {"PREFECT_API_URL": server} if server else {}
    if secret := SECRETS.get(server or ""):
        named["PREFECT_API_AUTH_STRING"] = secret
    return {**inherited, **named, "PREFECT_TUNE_HOME": str(home)}


def sandboxes_of(pid: int) -> list[psutil.Process]:
    """Return the sandboxes of a process and its workers, which are copies of their zygotes."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            parent = process.parent()
            if parent and parent.pid != pid and parent.cmdline() == process.cmdline():
                found.append(process)
    return found


def wait_for(what: Callable[[], Any], seconds: float = 150.0) -> Any:
    """Return the first true value, or fail after the timeout."""
    since = monotonic()
    while not (value := what()):
        assert monotonic() - since < seconds, f"nothing after {seconds} s"
        sleep(0.05)
    return value


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie has ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def server_of(home: Path) -> dict[str, Any] | None:
    """Return the private server that a home has recorded, if the server runs."""
    note = home / "server" / "server.json"
    if not note.exists():
        return None
    server: dict[str, Any] = json.loads(note.read_text())
    SECRETS[server["url"]] = (home / "server" / "auth").read_text().strip()
    return server if is_alive(server["pid"]) else None


def stop_server(home: Path) -> None:
    """Stop the private server of a home that `--keep-server` left running."""
    leave = "from prefect_tune import local_server\nwith local_server(): pass"
    subprocess.run([sys.executable, "-c", leave], env=environment(home), check=True)


def kill(pid: int) -> None:
    """Kill a process with SIGKILL."""
    os.kill(pid, signal.SIGKILL)


def command_line(process: psutil.Process) -> list[str]:
    """Return the command line of a process as words; empty if the process has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []
