"""The Dask cluster of a flow: local processes, or the user's scheduler."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING

from prefect_tune.flows.progress import current_observer
from prefect_tune.flows.workers.external_workers import WorkerCheck, connected
from prefect_tune.flows.workers.local_workers import local_cluster, local_settings
from prefect_tune.flows.workers.roster import Roster
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.flows.workers.worker_starts import WorkerStarts
from prefect_tune.tasks.problem import StudyContext, TrialLimits
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner
from prefect_tune.tasks.worker.readiness import worker_environment

if TYPE_CHECKING:
    from prefect_tune.flows.workers.local_nanny import LocalCluster


_CONNECT_SECONDS = 10
"""Time limit for an external scheduler to answer."""
_START_SECONDS = 10
"""Longest wait for the last local worker if others are up; each has been up before."""


class _EarlyCluster:
    """A cluster that starts and closes in the background; `once` closes it when one flow ends."""

    def __init__(self, n_workers: int | None, *, once: bool) -> None:
        self._starts, self._once = WorkerStarts(), once
        self._background = ThreadPoolExecutor(1)
        self._starting = self._background.submit(local_cluster, n_workers, self._starts)
        self._closing: Future[None] | None = None

    @contextmanager
    def used(self) -> Iterator["LocalCluster"]:
        try:
            yield self._starting.result()
        finally:
            if self._once:
                self._begin_to_close()

    def end(self) -> None:
        closing = self._begin_to_close()
        self._background.shutdown()
        closing.result()

    def _begin_to_close(self) -> Future[None]:
        self._starts.is_over = True
        self._closing = self._closing or self._background.submit(self._close)
        return self._closing

    def _close(self) -> None:
        if self._starting.exception() is None:  # else the flow has raised it, or it is not needed
            self._starting.result().close()


# A flow's parameters are plain values, so a cluster needs another way into the flow.
_EARLY_CLUSTER: ContextVar[_EarlyCluster | None] = ContextVar("early_cluster", default=None)


@contextmanager
def workers_started_early(
    n_workers: int | None, scheduler: str | None, *, once: bool = False
) -> Iterator[None]:
    """Start local workers in the background for the flows called in the body.

    With a scheduler, nothing is started. With `once`, the body calls one flow, and the workers
    close while the flow ends.
    """
    if scheduler:
        yield
        return
    early = _EarlyCluster(n_workers, once=once)
    token = _EARLY_CLUSTER.set(early)
    try:
        yield
    finally:
        _EARLY_CLUSTER.reset(token)
        early.end()


@contextmanager
def started_pool(
    context: StudyContext, limits: TrialLimits, n_workers: int | None, scheduler: str | None
) -> Iterator[WorkerPool]:
    """Yield a pool of running workers: the scheduler's if it is given, else local workers.

    By default, the pool has one worker per core, or all workers of the scheduler. Raises `BadInput`
    if the scheduler cannot be reached, or one of its workers cannot be used, and `NoWorkers` if no
    local worker could be started for a long time.
    """
    if scheduler:
        with _external_pool(context, limits, n_workers, scheduler) as pool:
            yield pool
        return
    with (
        local_settings(),
        _local_cluster(n_workers) as cluster,
        LeanDaskTaskRunner(cluster=cluster) as runner,
    ):
        n_started = len(cluster.workers)
        pool = WorkerPool(runner, min(n_workers or n_started, n_started), starts=cluster.starts)
        pool.wait_for_all(_START_SECONDS)
        yield pool


@contextmanager
def _external_pool(
    context: StudyContext, limits: TrialLimits, n_workers: int | None, scheduler: str
) -> Iterator[WorkerPool]:
    connecting = {"timeout": _CONNECT_SECONDS}
    with LeanDaskTaskRunner(address=scheduler, client_kwargs=connecting) as runner:
        client = connected(runner, scheduler)
        check = WorkerCheck(scheduler, context, limits, worker_environment(context))
        roster = Roster(client, check, current_observer().note)
        roster.check_all()
        try:
            yield WorkerPool(runner, n_workers or inf, roster=roster)
        finally:
            roster.close()


@contextmanager
def _local_cluster(n_workers: int | None) -> Iterator["LocalCluster"]:
    early = _EARLY_CLUSTER.get()
    if early is not None:
        with early.used() as cluster:
            yield cluster
        return
    with local_cluster(n_workers) as cluster:
        try:
            yield cluster
        finally:
            cluster.starts.is_over = True
