"""One task that is no trial, run on a worker and waited for: a refit, a measurement."""

from collections.abc import Callable, Mapping
from math import inf
from threading import Event
from time import monotonic
from typing import Any
from uuid import UUID

from prefect.client.schemas.objects import State
from prefect.states import Cancelled, Crashed
from prefect_dask.task_runners import PrefectDaskFuture

from prefect_tune.flows.workers.reaping import reap
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.tasks.evaluate import TrialOutcome

__all__ = ["run_job"]

_ATTEMPTS = 2
"""How often a job is started whose worker dies."""
_CHECK_SECONDS = 0.5
"""Between two looks at a job under way."""


def run_job(
    pool: WorkerPool,
    flow_run_id: UUID,
    task: Any,
    parameters: Mapping[str, Any],
    *,
    limit_seconds: float = inf,
    check: Callable[[], None] = lambda: None,
) -> Any:
    """Run a task on a worker and wait for its result; once more if the worker dies.

    Args:
        pool: The workers, none of which is needed by a trial meanwhile.
        flow_run_id: The flow run that the task run belongs to.
        task: The task.
        parameters: Its parameters.
        limit_seconds: Longest time that it may take on a worker.
        check: Called while it runs; the task is ended when this raises.

    Raises:
        RuntimeError: If no worker comes back, or the worker died in each attempt.
        TimeoutError: If the task takes longer.
        Exception: What the task or `check` raises. (A trial that fails has a result.)
    """
    for _ in range(_ATTEMPTS):
        pool.wait_for_worker(check)
        future = pool.submit(task, parameters)
        try:
            if _finishes(future, pool, flow_run_id, limit_seconds, check):
                return _result(future)
        finally:
            future.wrapped_future.release()
    raise RuntimeError(f"the worker process died in {_ATTEMPTS} attempts")


def _finishes(
    future: PrefectDaskFuture[Any],
    pool: WorkerPool,
    flow_run_id: UUID,
    limit_seconds: float,
    check: Callable[[], None],
) -> bool:
    """Wait for a job; False when its worker died."""
    until, done = monotonic() + limit_seconds, Event()
    future.wrapped_future.add_done_callback(lambda _: done.set())
    try:
        while not done.wait(_CHECK_SECONDS):
            check()
            pool.cancel_stranded(future)
            if monotonic() > until:
                raise TimeoutError(f"took more than {limit_seconds:g} s")  # noqa: TRY301
    except BaseException as error:
        pool.end([future])
        cancelled: State[Any] = Cancelled(message=str(error) or "the flow was interrupted")
        reap(flow_run_id, cancelled, of_trials=[future.task_run_id])
        raise
    if future.wrapped_future.status == "finished":
        return True
    pool.note_death()
    crashed: State[Any] = Crashed(message="the worker process died")
    reap(flow_run_id, crashed, of_trials=[future.task_run_id])
    return False


def _result(future: PrefectDaskFuture[Any]) -> Any:
    """Return what a finished job returned, or raise what it raised."""
    state: State[Any] = future.wrapped_future.result()
    data = getattr(state.data, "result", state.data)
    return data if isinstance(data, TrialOutcome) else future.result()
