"""The Dask cluster that a flow runs on: processes of this machine, or a scheduler of the user's."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from prefect_tune.flows.workers.external_workers import check_external_workers
from prefect_tune.flows.workers.local_workers import local_cluster, local_settings
from prefect_tune.tasks.study_context import StudyContext
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner
from prefect_tune.tasks.worker.trial_limits import TrialLimits

if TYPE_CHECKING:
    from distributed import SpecCluster

__all__ = ["started_runner", "workers_started_early"]

_CONNECT_SECONDS = 10
"""How long a scheduler elsewhere may take to answer."""
_START_SECONDS = 120
"""How long local workers may take to start."""
# A flow's parameters are plain values: a cluster can only be handed to it beside them.
_EARLY_CLUSTER: ContextVar["Future[SpecCluster] | None"] = ContextVar("early_cluster", default=None)


@contextmanager
def workers_started_early(n_workers: int | None, scheduler: str | None) -> Iterator[None]:
    """Start local workers in the background, for the flow that is called in the body.

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


@contextmanager
def started_runner(
    context: StudyContext, limits: TrialLimits, n_workers: int | None, scheduler: str | None
) -> Iterator[tuple[LeanDaskTaskRunner, int]]:
    """Yield a runner whose workers are up, and their number.

    Args:
        context: The study.
        limits: What each of its trials may take.
        n_workers: Local workers; None for one per core.
        scheduler: Address of a scheduler to use instead of local workers.

    Raises:
        BadInput: If the scheduler cannot be reached, or one of its workers cannot be used.
    """
    if scheduler:
        connecting = {"timeout": _CONNECT_SECONDS}
        with LeanDaskTaskRunner(address=scheduler, client_kwargs=connecting) as runner:
            yield runner, check_external_workers(runner, scheduler, context, limits)
        return
    with (
        local_settings(),
        _local_cluster(n_workers) as cluster,
        LeanDaskTaskRunner(cluster=cluster) as runner,
    ):
        n_started = len(cluster.workers)
        runner.client.wait_for_workers(n_started, timeout=_START_SECONDS)
        yield runner, n_started


@contextmanager
def _local_cluster(n_workers: int | None) -> Iterator["SpecCluster"]:
    """Yield the cluster that was started early, else one of our own."""
    early = _EARLY_CLUSTER.get()
    if early is not None:
        yield early.result()
        return
    with local_cluster(n_workers) as cluster:
        yield cluster
