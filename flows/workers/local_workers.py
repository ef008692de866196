"""Worker processes on this machine, forked from a process that has imported everything once.

A worker that imports scikit-learn and Prefect itself takes seconds to start. A forked worker is
back within a fifth of a second, so killing it at a trial limit is cheap. Workers are forked on
Linux and spawned elsewhere.

A Dask scheduler runs any code it receives, so its nodes talk only to each other and to the flow:
all traffic is TLS with one temporary key in the memory of these processes. Dask's HTTP servers
(dashboard, metrics, tasks with their arguments) require no key and are therefore off.

Workers do not import the user's main module, so a script needs no guard. `multiprocessing` would
import it in each process, and an unguarded script would start over in each worker. Trials need
nothing from the module, because spaces and quantities are sent as text.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import spawn
from typing import TYPE_CHECKING, Any

from distributed import Scheduler, Worker

from prefect_tune.flows.workers.fork_server import (
    METHOD,
    PRELOAD,
    environment,
    start_fork_server,
)
from prefect_tune.flows.workers.scratch import scratch_folder

if TYPE_CHECKING:
    from prefect_tune.flows.workers.local_nanny import LocalCluster
    from prefect_tune.flows.workers.worker_starts import WorkerStarts


class _WithoutHttp:
    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start no server."""


class ClosedScheduler(_WithoutHttp, Scheduler):
    """A scheduler without an HTTP server."""


class ClosedWorker(_WithoutHttp, Worker):
    """A worker without an HTTP server."""


_OF_NANNY = "Dask Worker process (from Nanny)"
"""Name of processes started by nannies. Dask pickles functions of a main module by value."""
_MAIN = ("init_main_from_name", "init_main_from_path")
_prepared = spawn.get_preparation_data


def skip_main_module() -> None:
    """Start workers without the main module of this process from now on."""
    spawn.get_preparation_data = _without_main


def _without_main(name: str) -> dict[str, Any]:
    """Return the preparation data for a process, for workers without the main module."""
    told: dict[str, Any] = _prepared(name)
    if name == _OF_NANNY:
        return {what: value for what, value in told.items() if what not in _MAIN}
    return told


_DASK_SETTINGS: Mapping[str, Any] = {
    "distributed.worker.multiprocessing-method": METHOD,
    # On a busy machine, a worker may take long to restart.
    "distributed.deploy.lost-worker-timeout": "1h",
    # Nannies know whether their workers live; the scheduler would rely on the clock, which may
    # be changed.
    "distributed.scheduler.worker-ttl": None,
    # The search decides whether to rerun the trial of a dead worker.
    "distributed.scheduler.allowed-failures": 0,
    # The store has the matrices; a worker out of memory is killed, not slowed down.
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    # Nothing is served by HTTP.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Dask profiles itself a hundred times a second, which costs the trials a core in fifteen.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "5s",
}


@contextmanager
def local_settings() -> Iterator[None]:
    """Configure Dask while local workers live, because restarts need the settings too."""
    import dask  # noqa: PLC0415 - heavy; see above

    with dask.config.set(_DASK_SETTINGS):
        yield


def local_cluster(n_workers: int | None, starts: "WorkerStarts | None" = None) -> "LocalCluster":
    """Start a cluster of worker processes with one thread each, by default one per core.

    Raises `BadInput` if the folder for temporary files cannot be created, and `NoWorkers` if a
    worker could not be started for a long time.
    """
    import distributed  # noqa: PLC0415 - heavy
    from dask.system import CPU_COUNT  # noqa: PLC0415 - of what this process may use

    from prefect_tune.flows.workers.local_nanny import LocalCluster, LocalNanny  # noqa: PLC0415
    from prefect_tune.flows.workers.worker_starts import WorkerStarts  # noqa: PLC0415

    start_fork_server()
    skip_main_module()
    starts = starts or WorkerStarts()
    logging.getLogger("distributed").setLevel(logging.ERROR)  # it logs every connection
    listening = {
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": distributed.Security.temporary(),
    }
    worker = {
        "cls": LocalNanny,
        "options": {
            **listening,
            "starts": starts,
            "worker_class": ClosedWorker,
            "local_directory": str(scratch_folder()),
            "nthreads": 1,
            "memory_limit": 0,  # nannies keep ours: see `TrialLimits`
            "silence_logs": logging.CRITICAL,
            "preload": [*PRELOAD],
        },
    }
    with local_settings(), environment():
        try:
            cluster = LocalCluster(
                scheduler={"cls": ClosedScheduler, "options": {**listening, "dashboard": False}},
                workers=dict.fromkeys(range(n_workers or CPU_COUNT), worker),
                worker=worker,
                security=listening["security"],
                silence_logs=logging.CRITICAL,
            )
        except Exception as error:
            if not starts.cause:
                raise
            raise starts.no_workers() from error
    cluster.starts = starts
    return cluster
