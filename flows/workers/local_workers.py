"""Worker processes on this machine, forked from one that has imported everything once.

A worker that imports scikit-learn and Prefect for itself takes seconds to start; a forked one is
back in a fifth of a second after it was ended, which makes trial limits cheap. Workers are forked
on Linux, and spawned elsewhere.

Light to import: the process to fork from can be started before anything else.
"""

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from prefect_tune.flows.workers.main_module import spare_main_module
from prefect_tune.flows.workers.scratch import scratch_folder
from prefect_tune.tasks.threads import THREAD_VARIABLES

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["local_cluster", "local_settings", "warmed_up"]

_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
_PRELOAD = (
    "prefect_tune.tasks.worker.parent_death",
    "prefect_tune.tasks.worker.trial_note",
    "prefect_tune.tasks.refit",
)
"""Modules that tie a worker to us and make its note; the last one loads all that a trial needs."""
_PRELOADED = "prefect_tune.flows.workers.preloaded"
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
_DASK_SETTINGS = {
    "distributed.worker.multiprocessing-method": _METHOD,
    # On a busy machine, a worker may take long to come back.
    "distributed.deploy.lost-worker-timeout": "1h",
    # Nannies know whether their workers live; the scheduler would ask the clock, which may be set.
    "distributed.scheduler.worker-ttl": None,
    # Whether to start the trial of a worker that died again is the search's decision.
    "distributed.scheduler.allowed-failures": 0,
    # The store keeps matrices; a worker out of memory is ended, not slowed down.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    # Dask profiles itself a hundred times a second, which takes a core in fifteen from the trials.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "5s",
}


@contextmanager
def warmed_up() -> Iterator[None]:
    """Start the process that workers are forked from; it imports while the body runs.

    It is ended with the body, as it would end by itself only after all its imports.
    """
    _warm_up()
    try:
        yield
    finally:
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if "multiprocessing.forkserver" in " ".join(child.cmdline()):
                    child.kill()


def _warm_up() -> None:
    if _METHOD == "forkserver":
        with _environment(), _terminal_ignored():
            get_context(_METHOD).set_forkserver_preload([_PRELOADED, *_PRELOAD])
            forkserver.ensure_running()


@contextmanager
def local_settings() -> Iterator[None]:
    """Set Dask up for local workers, for as long as they live.

    One that died is started again with the settings of that moment.
    """
    import dask  # noqa: PLC0415 - heavy; see above

    with dask.config.set(_DASK_SETTINGS):
        yield


def local_cluster(n_workers: int | None) -> "SpecCluster":
    """Start a cluster of worker processes with one thread each, by default one per core."""
    import distributed  # noqa: PLC0415 - heavy; see above
    from dask.system import CPU_COUNT  # noqa: PLC0415 - of what this process may use

    from prefect_tune.flows.workers.closed_nodes import (  # noqa: PLC0415
        ClosedScheduler,
        ClosedWorker,
    )

    _warm_up()
    spare_main_module()
    logging.getLogger("distributed").setLevel(logging.ERROR)  # it logs every connection
    listening = {
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": distributed.Security.temporary(),
    }
    worker = {
        "cls": distributed.Nanny,
        "options": {
            **listening,
            "worker_class": ClosedWorker,
            "local_directory": str(_scratch_folder()),
            "nthreads": 1,
            "memory_limit": 0,  # nannies keep ours: see `TrialLimits`
            "silence_logs": logging.CRITICAL,
            "preload": [*_PRELOAD],
        },
    }
    with local_settings(), _environment():
        return distributed.SpecCluster(
            scheduler={"cls": ClosedScheduler, "options": {**listening, "dashboard": False}},
            workers=dict.fromkeys(range(n_workers or CPU_COUNT), worker),
            worker=worker,
            security=listening["security"],
            silence_logs=logging.CRITICAL,
        )


@contextmanager
def _terminal_ignored() -> Iterator[None]:
    """Let processes that the body starts ignore the terminal, as this one ends them."""
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


@contextmanager
def _environment() -> Iterator[None]:
    """Set the environment of workers, for processes that the body starts."""
    environment = {**_ENVIRONMENT, "TMPDIR": str(_scratch_folder())}
    former = {name: os.environ.get(name) for name in environment}
    former_tempdir, folder = tempfile.tempdir, environment["TMPDIR"]
    tempfile.tempdir = folder if len(folder) <= _LONGEST_FOLDER else "/tmp"  # noqa: S108 - see there
    os.environ.update(environment)
    try:
        yield
    finally:
        tempfile.tempdir = former_tempdir
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
