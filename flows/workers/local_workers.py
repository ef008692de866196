"""Worker processes on this machine, forked from one that has imported everything once.

A worker that imports scikit-learn and Prefect for itself takes seconds to start; a forked one is
back in a fifth of a second after it was ended, which makes trial limits cheap. Workers are forked
on Linux, and spawned elsewhere.

Light to import: the process to fork from can be started before anything else.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context
from typing import TYPE_CHECKING

import psutil

from prefect_tune.tasks.threads import THREAD_VARIABLES

if TYPE_CHECKING:
    from distributed import LocalCluster

__all__ = ["local_cluster", "local_settings", "warmed_up"]

_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
_PRELOAD = (
    "prefect_tune.tasks.worker.parent_death",
    "prefect_tune.tasks.worker.trial_note",
    "prefect_tune.tasks.refit",
)
"""Modules that tie a worker to us and make its note; the last one loads all that a trial needs."""
_ENVIRONMENT: Mapping[str, str] = {
    # One trial per core: its threads would compete with the other trials.
    **THREAD_VARIABLES,
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
}
_DASK_SETTINGS = {
    "distributed.worker.multiprocessing-method": _METHOD,
    # On a busy machine, a worker may take long to come back.
    "distributed.deploy.lost-worker-timeout": "1h",
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
        with _environment():
            get_context(_METHOD).set_forkserver_preload([*_PRELOAD, "distributed.nanny"])
            forkserver.ensure_running()


@contextmanager
def local_settings() -> Iterator[None]:
    """Set Dask up for local workers, for as long as they live.

    One that died is started again with the settings of that moment.
    """
    import dask  # noqa: PLC0415 - heavy; see above

    with dask.config.set(_DASK_SETTINGS):
        yield


def local_cluster(n_workers: int | None) -> "LocalCluster":
    """Start a cluster of worker processes with one thread each, by default one per core."""
    import distributed  # noqa: PLC0415 - heavy; see above

    _warm_up()
    logging.getLogger("distributed").setLevel(logging.ERROR)  # it logs every connection
    with local_settings(), _environment():
        return distributed.LocalCluster(
            n_workers=n_workers or os.cpu_count() or 1,
            threads_per_worker=1,
            memory_limit=0,  # nannies keep ours: see `TrialLimits`
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            preload=[*_PRELOAD],
        )


@contextmanager
def _environment() -> Iterator[None]:
    """Set the environment of workers, for processes that the body starts."""
    former = {name: os.environ.get(name) for name in _ENVIRONMENT}
    os.environ.update(_ENVIRONMENT)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
