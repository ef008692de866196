"""Worker processes on this machine, forked from one that has imported everything once.

A worker that imports scikit-learn and Prefect for itself needs seconds to start; forked, it is back
in a fifth of one after it had to be ended. That is what makes limits on trials cheap. Forking is
done on Linux only; elsewhere workers are spawned.

Light to import, so that the process to fork from can be started before anything else.
"""

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, get_context
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from distributed import LocalCluster

__all__ = ["local_cluster", "local_settings", "warmed_up"]

_METHOD = "forkserver" if sys.platform == "linux" else "spawn"
_PRELOAD = "prefect_tune.tasks.refit"
"""The module that imports all that a trial needs."""
_ENVIRONMENT: Mapping[str, str] = {
    # One trial per core: threads of its own would fight with those of the others.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
}
_DASK_SETTINGS = {
    "distributed.worker.multiprocessing-method": _METHOD,
    # One that is slow to come back, on a busy machine, is not given up.
    "distributed.deploy.lost-worker-timeout": "1h",
    # A worker that dies takes one trial with it; we decide ourselves whether to start it again.
    "distributed.scheduler.allowed-failures": 0,
    # Matrices are ours to keep or drop; a worker that runs out of memory is ended, not slowed.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    # What Dask measures of itself, a hundred times a second, costs the trials a core in fifteen.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "5s",
}


@contextmanager
def warmed_up() -> Iterator[None]:
    """Have the process that workers are forked from import while the body does something else.

    It ends with the body; by itself it would end only once it has imported everything.
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
            get_context(_METHOD).set_forkserver_preload([_PRELOAD, "distributed.nanny"])
            forkserver.ensure_running()


@contextmanager
def local_settings() -> Iterator[None]:
    """Dask's settings for local workers, for as long as they live.

    One that died is started again by the settings of that moment.
    """
    import dask  # noqa: PLC0415 - heavy; see above

    with dask.config.set(_DASK_SETTINGS):
        yield


def local_cluster(n_workers: int | None) -> "LocalCluster":
    """A started cluster of worker processes with one thread each; by default one per core."""
    import distributed  # noqa: PLC0415 - heavy; see above

    _warm_up()
    logging.getLogger("distributed").setLevel(logging.ERROR)  # it tells of every connection
    with local_settings(), _environment():
        return distributed.LocalCluster(
            n_workers=n_workers or os.cpu_count() or 1,
            threads_per_worker=1,
            memory_limit=0,  # ours: see tasks.limits
            processes=True,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
            preload=[_PRELOAD],
        )


@contextmanager
def _environment() -> Iterator[None]:
    """The environment of workers, for processes started in the body."""
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
