"""The process that local workers are forked from; whenever it starts, it starts alike.

It has imported everything once, so that a worker is up in a fifth of a second. If it is killed,
`multiprocessing` starts another one as soon as a worker is to be forked, in whatever thread that
happens, and with the modules that Dask prefers. Ours brings its modules, environment and signals
to each of its starts. Elsewhere than on Linux, workers are spawned.

Light to import: the process can be started before anything else.
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

__all__ = ["METHOD", "PRELOAD", "environment", "fork_server_pid", "start_fork_server", "warmed_up"]

METHOD = "forkserver" if sys.platform == "linux" else "spawn"
PRELOAD = (
    "prefect_tune.tasks.worker.parent_death",
    "prefect_tune.tasks.worker.trial_note",
    "prefect_tune.tasks.refit",
    "prefect_tune.tasks.worker.start_log",
    "prefect_tune.tasks.worker.printed_output",
)
"""Modules of a worker: they tie it to us, make its note, load all that a trial needs, end the log
of its start, and then take what it prints."""
_SERVER = "prefect_tune.flows.workers.preloaded"
_ENVIRONMENT: Mapping[str, str] = {
    # One trial per core: its threads would compete with the other trials.
    **THREAD_VARIABLES,
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # each event of an outage would be printed
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
}
_LONGEST_FOLDER = 70
"""Names of sockets have at most 107 bytes, and `multiprocessing` adds some thirty to a folder's."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGHUP)


class _ForkServer(forkserver.ForkServer):
    """`multiprocessing`'s fork server with our modules, environment and signals."""

    def ensure_running(self) -> None:
        """Start the process unless it runs."""
        self.set_forkserver_preload([_SERVER, *PRELOAD])  # Dask may have set its own meanwhile
        with environment(), _terminal_ignored():
            super().ensure_running()


def start_fork_server() -> None:
    """Start the process that workers are forked from, unless it runs or workers are spawned."""
    if METHOD == "forkserver":
        _server().ensure_running()


def fork_server_pid() -> int | None:
    """Return the process that workers are forked from, dead or alive; None before its start."""
    pid: int | None = _server()._forkserver_pid if METHOD == "forkserver" else None  # noqa: SLF001
    return pid


@contextmanager
def warmed_up() -> Iterator[None]:
    """Start the process that workers are forked from; it imports while the body runs.

    It is ended with the body, as it would end by itself only after all its imports.
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
    """Return the fork server of `multiprocessing`, turned into ours; there is one a process."""
    server = forkserver._forkserver  # noqa: SLF001 - all users have that one
    server.__class__ = _ForkServer
    return server


@contextmanager
def _terminal_ignored() -> Iterator[None]:
    """Let processes that the body starts ignore the terminal, as this one ends them.

    In other threads signals cannot be set; there, the process sees to it itself.
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
        BadInput: If there can be none.
    """
    from prefect_tune.tasks.bad_input import BadInput  # noqa: PLC0415 - heavy; see above

    try:
        return scratch_folder()
    except OSError as error:
        raise BadInput(f"workers have no folder for their files: {error}") from error


class _Environment:
    """The environment of workers, while anybody starts some: several threads may at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_users = 0
        self._former: dict[str, str | None] = {}
        self._former_folder: str | None = None

    def enter(self) -> None:
        """Set it, as its first user."""
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
        """Set what was before, as its last user."""
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
    """Set the environment of workers, for processes that the body starts."""
    _OURS.enter()
    try:
        yield
    finally:
        _OURS.leave()
