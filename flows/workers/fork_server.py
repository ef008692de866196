"""The fork server of local workers: the process that they are forked from.

The fork server imports everything once, so that a worker is up in a fifth of a second. If it is
killed, `multiprocessing` starts a new one when the next worker is forked, in any thread, and with
the modules that Dask has chosen meanwhile. `_ForkServer` therefore sets modules, environment and
signals at every start. Only Linux has a fork server; on other systems workers are spawned.

This module imports little, so that a command can start the fork server first.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import psutil

from prefect_tune.flows.workers.scratch import scratch_folder
from prefect_tune.tasks.threads import THREAD_VARIABLES
from prefect_tune.tasks.worker.start_log import LOG_VARIABLE, log_path

METHOD = "forkserver" if sys.platform == "linux" else "spawn"
PRELOAD = (
    "prefect_tune.tasks.worker.orphans",
    "prefect_tune.tasks.worker.trial_note",
    "prefect_tune.tasks.final_model",
    "prefect_tune.tasks.worker.start_log",
    "prefect_tune.tasks.worker.printed_output",
)
"""Modules that a worker loads: they tie it to its parent, write its note, import what trials need,
close the log of its start, and capture its output."""
_SERVER = "prefect_tune.flows.workers.preloaded"
_ENVIRONMENT: Mapping[str, str] = {
    # One trial runs on each core, and its threads would compete with other trials.
    **THREAD_VARIABLES,
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait leave their core to others
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # each event of an outage would be printed
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
}
_LONGEST_FOLDER = 70
"""Longest folder for sockets: their paths have at most 107 bytes, and `multiprocessing` adds 30."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGHUP)


class _ForkServer(forkserver.ForkServer):
    """`multiprocessing`'s fork server with our modules, environment and signals."""

    def ensure_running(self) -> None:
        """Start the fork server unless it is running."""
        self.set_forkserver_preload([_SERVER, *PRELOAD])  # Dask replaces them
        with environment(), _terminal_ignored():
            super().ensure_running()


def start_fork_server() -> None:
    """Start the fork server, unless it is running or workers are spawned."""
    if METHOD == "forkserver":
        _server().ensure_running()


def fork_server_pid() -> int | None:
    """Return the process id of the last fork server, dead or alive; None before the first start."""
    pid: int | None = _server()._forkserver_pid if METHOD == "forkserver" else None  # noqa: SLF001
    return pid


def end_stopped_fork_server() -> bool:
    """Kill the fork server if it is stopped, as by SIGSTOP; return whether it was.

    A stopped fork server neither forks workers nor reports that they died. The next start of a
    worker starts another fork server.
    """
    pid = fork_server_pid()
    with suppress(psutil.Error):
        if pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


@contextmanager
def warmed_up() -> Iterator[None]:
    """Start the fork server, which imports modules while the body runs.

    After the body, the fork server is killed: on its own it would end only after its imports.
    """
    start_fork_server()
    try:
        yield
    finally:
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if "multiprocessing.forkserver" in " ".join(child.cmdline()):
                    child.kill()


def _server() -> Any:
    """Return the only fork server object of `multiprocessing`, with its class set to ours."""
    server = forkserver._forkserver  # noqa: SLF001 - multiprocessing has one object
    server.__class__ = _ForkServer
    return server


@contextmanager
def _terminal_ignored() -> Iterator[None]:
    """Make processes started in the body ignore signals of the terminal; the flow ends them.

    Only the main thread can do so. In other threads, the fork server ignores them once it runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, signal.SIG_IGN) for number in _OF_TERMINAL}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _scratch_folder() -> Path:
    """Return the folder for temporary files.

    Raises:
        BadInput: If the folder cannot be made.
    """
    from prefect_tune.tasks.bad_input import BadInput  # noqa: PLC0415 - heavy; see above

    try:
        return scratch_folder()
    except OSError as error:
        raise BadInput(f"workers have no folder for their files: {error}") from error


class _Environment:
    """The environment of workers, set while any thread starts workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_users = 0
        self._former: dict[str, str | None] = {}
        self._former_folder: str | None = None

    def enter(self) -> None:
        """Set the environment, unless another thread has set it."""
        folder, log = str(_scratch_folder()), str(log_path(_scratch_folder()))
        ours = {**_ENVIRONMENT, "TMPDIR": folder, LOG_VARIABLE: log}
        with self._lock:
            self._n_users += 1
            if self._n_users > 1:
                return
            self._former = {name: os.environ.get(name) for name in ours}
            self._former_folder = tempfile.tempdir
            is_short = len(folder) <= _LONGEST_FOLDER
            tempfile.tempdir = folder if is_short else "/tmp"  # noqa: S108 - see there
            os.environ.update(ours)

    def leave(self) -> None:
        """Restore the former environment, unless another thread still needs this one."""
        with self._lock:
            self._n_users -= 1
            if self._n_users:
                return
            tempfile.tempdir = self._former_folder
            for name, value in self._former.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


_OURS = _Environment()


@contextmanager
def environment() -> Iterator[None]:
    """Set the environment of workers for processes started in the body."""
    _OURS.enter()
    try:
        yield
    finally:
        _OURS.leave()
