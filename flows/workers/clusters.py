"""The Dask cluster that a flow runs on: processes of this machine, or a scheduler of the user's.

Workers of the user's are asked whether they can work for us before the first trial.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from time import monotonic, sleep
from typing import Any

import distributed

from prefect_tune.flows.workers.local_workers import local_cluster, local_settings
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner
from prefect_tune.tasks.worker.readiness import worker_environment
from prefect_tune.tasks.worker.trial_limits import TrialLimits

__all__ = ["started_runner", "workers_started_early"]

_MOMENT_SECONDS = 5.0
"""How long the scheduler may take to know of a worker that has answered."""


@contextmanager
def started_runner(
    context: StudyContext, limits: TrialLimits, n_workers: int | None, scheduler: str | None
) -> Iterator[tuple[LeanDaskTaskRunner, int]]:
    """A runner whose workers are there, and how many they are.

    Args:
        context: The study.
        limits: What each of its trials may take.
        n_workers: Local workers; None for one per core.
        scheduler: Address of a scheduler to use instead of local workers.

    Raises:
        BadInput: If a scheduler cannot be reached, or one of its workers cannot work for us.
    """
    with (
        nullcontext() if scheduler else local_settings(),
        _cluster(n_workers, scheduler) as cluster,
        _runner(scheduler, cluster) as runner,
    ):
        if scheduler:
            n_started = _check_workers(runner, scheduler, context, limits)
        else:
            n_started = len(cluster.workers)
            runner.client.wait_for_workers(n_started, timeout=120)
        yield runner, n_started


@contextmanager
def workers_started_early(n_workers: int | None, scheduler: str | None) -> Iterator[None]:
    """Start local workers in the background, for the flow that is called in the body.

    Workers and the Prefect server take seconds to start; this way they start at the same time.

    Args:
        n_workers: Local workers; None for one per core.
        scheduler: Address of a scheduler to use instead: then there is nothing to start.
    """
    if scheduler:
        yield
        return
    with ThreadPoolExecutor(1) as background:
        starting = background.submit(local_cluster, n_workers)
        token = _EARLY_CLUSTER.set(starting)
        try:
            yield
        finally:
            _EARLY_CLUSTER.reset(token)
            starting.result().close()


_EARLY_CLUSTER: ContextVar[Future[Any] | None] = ContextVar("early_cluster", default=None)


@contextmanager
def _cluster(n_workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A cluster of local processes, one per core; None when another scheduler is named."""
    early = _EARLY_CLUSTER.get()
    if scheduler:
        yield None
    elif early is not None:
        yield early.result()
    else:
        with local_cluster(n_workers) as cluster:
            yield cluster


def _runner(scheduler: str | None, cluster: Any) -> LeanDaskTaskRunner:
    if cluster is None:
        return LeanDaskTaskRunner(address=scheduler, client_kwargs={"timeout": 10})
    return LeanDaskTaskRunner(cluster=cluster)


def _described(client: distributed.Client, addresses: Sequence[str]) -> Mapping[str, Any]:
    """What the scheduler says of workers; it may be a moment behind.

    Raises:
        BadInput: If one of them has gone away.
    """
    until = monotonic() + _MOMENT_SECONDS
    while True:
        workers: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
        gone = [address for address in addresses if address not in workers]
        if not gone:
            return workers
        if monotonic() > until:
            raise BadInput(f"worker {gone[0]} went away while it was asked whether it can work")
        sleep(0.1)


def _check_workers(
    runner: LeanDaskTaskRunner, scheduler: str, context: StudyContext, limits: TrialLimits
) -> int:
    """Have every worker of an external cluster prove that it can work for us; how many there are.

    Raises:
        BadInput: If one cannot; names it.
    """
    try:
        client = runner.client
        client.wait_for_workers(1, timeout=30)
    except (OSError, TimeoutError, distributed.TimeoutError) as error:
        raise BadInput(
            f"--dask {scheduler}: no scheduler with a worker answers there ({error}); start "
            "one with `dask scheduler` and `dask worker`"
        ) from error
    ours = worker_environment(context)
    theirs = client.run(worker_environment, context, on_error="return")
    workers = _described(client, list(theirs))
    for address, environment in theirs.items():
        if isinstance(environment, Exception):
            raise BadInput(f"worker {address} cannot work for this study: {environment}")
        differing = {k: (v, ours[k]) for k, v in environment.items() if v != ours[k]}
        if differing:
            what, (there, here) = next(iter(differing.items()))
            raise BadInput(f"worker {address} has {what} {there}, and here it is {here}")
        if not workers[address].get("nanny"):
            raise BadInput(
                f"worker {address} has no nanny, so a trial on it could not be ended; start it "
                "with --nanny"
            )
        if workers[address]["nthreads"] != 1:
            raise BadInput(
                f"worker {address} has {workers[address]['nthreads']} threads, and a trial takes "
                "one; start it with --nthreads 1"
            )
        least = workers[address]["memory_limit"]
        if limits.memory_bytes and least and limits.memory_bytes > least:
            raise BadInput(
                f"worker {address} may take {least / 1e9:.3g} GB, less than --trial-memory "
                f"{limits.memory_bytes / 1e9:.3g} GB; start it with a larger --memory-limit"
            )
    return len(theirs)
