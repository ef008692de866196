"""The Dask cluster of a flow: in the flow's process, in worker processes, or the user's cluster.

Worker threads only wait for sandboxes, so a few slots fit into the flow's process, without any
port. For more slots, worker processes with at most four threads each are started. Because a Dask
scheduler runs any code that it receives, all traffic between processes uses TLS, with a temporary
key that exists only in the memory of these processes. Dask's HTTP servers (dashboard, metrics,
tasks with their arguments) require no key and are therefore switched off.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import dask
import distributed
from dask.system import CPU_COUNT
from distributed import SpecCluster

from prefect_tune.flows.study.progress import current_observer
from prefect_tune.flows.workers.pool import WorkerCheck, WorkerPool, Workers
from prefect_tune.flows.workers.worker_process import (
    ClosedScheduler,
    ClosedWorker,
    WorkerProcesses,
)
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import StudyContext
from prefect_tune.tasks.sandbox.dask_runner import LeanDaskTaskRunner, only_errors_logged
from prefect_tune.tasks.sandbox.sandbox import SANDBOXES
from prefect_tune.tasks.sandbox.zygote import scratch_folder
from prefect_tune.tasks.trial.evaluate import worker_environment

MOST_IN_PROCESS = 4
"""Number of slots above which worker processes are started."""
_CONNECT_SECONDS = 10
"""Time limit for an external scheduler to answer."""
_WORKER_SECONDS = 30
"""Maximum wait for the first worker of a scheduler."""
_SETTINGS: Mapping[str, Any] = {
    # The flow itself watches its worker processes, because clocks can change.
    "distributed.scheduler.worker-ttl": None,
    # The search loop decides whether to rerun the trial of a dead worker.
    "distributed.scheduler.allowed-failures": 0,
    # Dask profiles itself a hundred times a second, which takes a fifteenth of the CPU time.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "5s",
}

_SETTING = Lock()
"""Lock held while settings of this process change, because it may run several flows."""


@contextmanager
def started_pool(
    context: StudyContext, n_workers: int | None, scheduler: str | None
) -> Iterator[WorkerPool]:
    """Yield a pool of running workers, either of a given scheduler or on this machine.

    By default, the pool has one slot per core or, with a scheduler, one slot per worker thread.
    Raises `BadInput` if the scheduler cannot be reached or a worker is unsuitable, and `NoWorkers`
    if no local worker could be started.
    """
    if scheduler:
        connecting = {"timeout": _CONNECT_SECONDS}
        with LeanDaskTaskRunner(address=scheduler, client_kwargs=connecting) as runner:
            try:
                client = runner.client
                client.wait_for_workers(1, timeout=_WORKER_SECONDS)
            except (OSError, TimeoutError, ValueError, distributed.TimeoutError) as error:
                raise BadInput(
                    f"no Dask scheduler with at least one worker answers ({error})",
                    option="dask",
                    value=scheduler,
                    remedy="start a scheduler and a worker (`dask scheduler`, `dask worker`)",
                ) from error
            check = WorkerCheck(scheduler, context, worker_environment(context))
            workers = Workers(client, check=check, note=current_observer().note)
            workers.check_all()
            try:
                yield WorkerPool(runner, n_workers, workers)
            finally:
                workers.close()
        return
    n_slots = n_workers or CPU_COUNT
    with local_cluster(n_slots) as (cluster, processes), LeanDaskTaskRunner(cluster) as runner:
        workers = Workers(runner.client, processes=processes)
        workers.wait_for_all(n_slots)
        try:
            yield WorkerPool(runner, n_slots, workers)
        finally:
            SANDBOXES.close()


@contextmanager
def local_cluster(n_slots: int) -> Iterator[tuple[SpecCluster, WorkerProcesses | None]]:
    """Start a cluster on this machine; yield the cluster, and its worker processes if any.

    Raises `BadInput` if the folder for temporary files cannot be created.
    """
    try:
        folder = str(scratch_folder())
    except OSError as error:
        raise BadInput(f"workers have no folder for temporary files: {error}") from error
    options = {"local_directory": folder, "memory_limit": 0}
    with ExitStack() as stack:
        stack.enter_context(only_errors_logged("distributed"))  # this logger logs every connection
        if n_slots <= MOST_IN_PROCESS:
            options |= {"protocol": "inproc://", "nthreads": n_slots}
            workers = {0: {"cls": ClosedWorker, "options": options}}
            yield (
                stack.enter_context(_cluster({"protocol": "inproc://"}, folder, workers=workers)),
                None,
            )
            return
        security = distributed.Security.temporary()
        listening = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
        cluster = stack.enter_context(_cluster(listening, folder, security=security))
        processes = WorkerProcesses(
            cluster.scheduler_address, {**options, **listening}, _SETTINGS, n_slots
        )
        stack.callback(processes.close)
        yield cluster, processes


def _cluster(listening: Mapping[str, Any], folder: str, **options: Any) -> SpecCluster:
    scheduler = {"cls": ClosedScheduler, "options": {**listening, "dashboard": False}}
    # Dask reads these settings when a cluster is created. Other threads may create clusters, too.
    with _SETTING, dask.config.set({**_SETTINGS, "temporary-directory": folder}):
        return SpecCluster(scheduler=scheduler, **options)
