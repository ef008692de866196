"""The fork server of local workers: the process they are forked from.

The fork server imports everything once, so that a worker is up in a fifth of a second. A command
imports the same modules, so its fork server is a copy of the command's process, forked before any
thread starts. If it is killed, `multiprocessing` starts a new one when the next worker is forked,
in any thread and with the modules Dask has set by then. `_ForkServer` therefore sets modules,
environment and signals at every start. Only Linux has a fork server; other systems spawn workers.

This module imports little, so that a command can start the fork server first.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker, util
from pathlib import Path
from socket import AF_UNIX, socket
from typing import Any, NoReturn

import psutil

from prefect_tune.flows.workers.scratch import scratch_folder
from prefect_tune.tasks.threads import THREAD_VARIABLES
from prefect_tune.tasks.worker.standard_streams import flush_streams
from prefect_tune.tasks.worker.start_log import LOG_VARIABLE, log_path

METHOD = "forkserver" if sys.platform == "linux" else "spawn"
PRELOAD = (
    "prefect_tune.tasks.worker.orphans",
    "prefect_tune.tasks.worker.trial_note",
    "prefect_tune.tasks.final_model",
    "prefect_tune.tasks.worker.start_log",
    "prefect_tune.tasks.worker.printed_output",
)
"""Modules that a worker loads: they tie it to its parent, write its note, import the modules of
trials, close its start log and capture its output."""
_SERVER = "prefect_tune.flows.workers.preloaded"
_PREFECT_VARIABLES: Mapping[str, str] = {
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # each event of an outage would be printed
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
}
_THREAD_VARIABLES: Mapping[str, str] = {
    # One trial runs on each core, and its threads would compete with other trials.
    **THREAD_VARIABLES,
    "OMP_WAIT_POLICY": "PASSIVE",  # threads that wait leave their core to others
}
_ENVIRONMENT: Mapping[str, str] = {**_THREAD_VARIABLES, **_PREFECT_VARIABLES}
_LONGEST_FOLDER = 70
"""Longest folder for sockets: their paths have at most 107 bytes, and `multiprocessing` adds 30."""
_OF_TERMINAL = (signal.SIGINT, signal.SIGHUP)
_STANDARD_ERROR = 2
_ENDING = (*_OF_TERMINAL, signal.SIGTERM)


class _ForkServer(forkserver.ForkServer):
    """`multiprocessing`'s fork server with our modules, environment and signals."""

    def ensure_running(self) -> None:
        self.set_forkserver_preload([_SERVER, *PRELOAD])  # Dask replaces them
        with environment(), _terminal_ignored():
            super().ensure_running()

    def copy_this_process(self) -> None:
        """Start the fork server as a copy of this process, which must have only one thread."""
        with self._lock, environment(), socket(AF_UNIX) as listener:
            resource_tracker.ensure_running()
            address = Path(util.get_temp_dir(), "fork-server")  # a folder of this process alone
            listener.bind(str(address))
            address.chmod(0o600)
            listener.listen()
            # Clients have the other end: the fork server ends once the last client has ended.
            alive, client_end = os.pipe()
            flush_streams()  # else both processes would write buffered text
            # The copy must not handle signals with the handlers of this process.
            former = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            try:
                if (pid := os.fork()) == 0:
                    self._serve(listener.fileno(), alive)
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, former)
            os.close(alive)
            self._forkserver_address, self._forkserver_alive_fd = str(address), client_end
            self._forkserver_pid = pid

    def _serve(self, listener: int, alive: int) -> NoReturn:
        """Act as the fork server, in a copy of the process that starts it."""
        try:
            self._lock = threading.Lock()  # held in the process that was copied
            _become_new(keep=(listener, alive))
            from prefect_tune.flows.workers.preloaded import begin  # noqa: PLC0415 - it is loaded

            begin()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
            forkserver.main(listener, alive, [*PRELOAD])
        except Exception:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)


def _become_new(keep: Collection[int]) -> None:
    """Reset signals, hooks and file descriptors of a copied process."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_DFL)
    sys.excepthook, sys.unraisablehook = sys.__excepthook__, sys.__unraisablehook__
    tempfile.tempdir = None
    open_here = {int(entry.name) for entry in Path("/proc/self/fd").iterdir()}
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in open_here - {nothing, *keep}:
        if descriptor > _STANDARD_ERROR:
            # Locks and pipes of the other process; objects may still refer to their numbers.
            os.dup2(nothing, descriptor, inheritable=False)


def start_fork_server() -> None:
    """Start the fork server, unless it is running or workers are spawned."""
    if METHOD == "forkserver":
        _server().ensure_running()


def fork_server_pid() -> int | None:
    """Return the process id of the last fork server, dead or alive; None before the first."""
    pid: int | None = _server()._forkserver_pid if METHOD == "forkserver" else None  # noqa: SLF001
    return pid


def end_stopped_fork_server() -> bool:
    """Kill the fork server if it is stopped, as by SIGSTOP; return whether it was.

    A stopped fork server neither forks workers nor reports their deaths. The next start of a worker
    starts another one.
    """
    pid = fork_server_pid()
    with suppress(psutil.Error):
        if pid is not None and psutil.Process(pid).status() == psutil.STATUS_STOPPED:
            os.kill(pid, signal.SIGKILL)
            return True
    return False


@contextmanager
def early_fork_server() -> Iterator[Callable[[], None]]:
    """Start the fork server early, and kill it after the body.

    In a process without numerical libraries and other threads, the body loads the modules of
    workers, and the fork server is a copy of the process. Otherwise, the fork server starts at once
    and imports modules while the body runs.

    Yields:
        A function to call once the modules are loaded, before any thread starts.
    """
    is_new = (
        METHOD == "forkserver"
        and "numpy" not in sys.modules  # it reads the variables when it is loaded
        and threading.active_count() == 1
        and _PREFECT_VARIABLES.items() <= os.environ.items()
    )
    if is_new:
        os.environ.update(_THREAD_VARIABLES)
    else:
        start_fork_server()

    def copy_once() -> None:
        if is_new and threading.active_count() == 1:
            _server().copy_this_process()
        else:
            start_fork_server()

    try:
        yield copy_once
    finally:
        if (pid := fork_server_pid()) is not None:
            with suppress(ProcessLookupError):  # `multiprocessing` waits for it
                os.kill(pid, signal.SIGKILL)


def _server() -> Any:
    """Return the only fork server object of `multiprocessing`, with its class set to ours."""
    server = forkserver._forkserver  # noqa: SLF001 - multiprocessing has one object
    server.__class__ = _ForkServer
    return server


@contextmanager
def _terminal_ignored() -> Iterator[None]:
    """Let processes started in the body ignore terminal signals; the flow ends them.

    Only the main thread can do so. In other threads, the fork server ignores signals once it runs.
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
    """Return the folder for temporary files; raise `BadInput` if it cannot be created."""
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
