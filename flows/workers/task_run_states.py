"""Final states for flow and task runs whose process is gone.

Prefect does not notice when a Dask worker or a flow is killed: its runs would stay Running for
ever. A study does not depend on what Prefect shows, so errors are only logged.
"""

import logging
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from prefect import Task
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterId,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType, TaskRun
from prefect.client.schemas.sorting import TaskRunSort
from prefect.exceptions import PrefectHTTPStatusError
from prefect.states import Crashed

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.workers.server_pace import ServerPace
from prefect_tune.tasks.worker.dask_runner import drain_events

_LOGGER = logging.getLogger(__name__)
_OPEN_STATES = [StateType.PENDING, StateType.RUNNING]


def close_open_runs(
    flow_run_id: UUID, state: State[Any], of_trials: Iterable[UUID] | None = None
) -> int:
    """Give the open task runs of a flow run a final state; return their number.

    `of_trials` restricts this to the given task runs and their child runs.
    """
    wanted = None if of_trials is None else {str(i) for i in of_trials}
    reaped = set[UUID]()
    try:
        with get_client(sync_client=True) as client:
            # Repeat until no run is found, because trials that run meanwhile shift the pages.
            while found := [
                task_run
                for task_run in _open_runs(client, flow_run_id)
                if task_run.id not in reaped
                and (wanted is None or str(task_run.id) in wanted or _parents(task_run) & wanted)
            ]:
                for task_run in found:
                    client.set_task_run_state(task_run.id, state, force=True)
                    reaped.add(task_run.id)
    except Exception as error:
        _LOGGER.warning(f"open task runs could not be set to {state.name}: {error}")
    return len(reaped)


def _open_runs(client: SyncPrefectClient, flow_run_id: UUID) -> list[TaskRun]:
    """Return the open task runs of a flow run, page by page, because requests are limited."""
    found: list[TaskRun] = []
    while page := client.read_task_runs(
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id])),
        task_run_filter=TaskRunFilter(
            state=TaskRunFilterState(type=TaskRunFilterStateType(any_=_OPEN_STATES))
        ),
        sort=TaskRunSort.ID_DESC,
        offset=len(found),
    ):
        found += page
    return found


def end_task_run(
    flow_run_id: UUID, task_run_id: UUID, task: Task[..., Any], name: str, state: State[Any]
) -> None:
    """Give a task run a final state, and create it if the server does not know it."""
    try:
        with get_client(sync_client=True) as client:
            try:
                client.set_task_run_state(task_run_id, state, force=True)
            except PrefectHTTPStatusError as error:
                if error.response.status_code != 404:
                    raise
                client.create_task_run(
                    task,
                    flow_run_id,
                    dynamic_key=str(task_run_id),
                    id=task_run_id,
                    name=name,
                    state=state,
                )
    except Exception as error:
        _LOGGER.warning(f"task run {task_run_id} could not be set to {state.name}: {error}")


def _parents(task_run: TaskRun) -> set[str]:
    inputs = task_run.task_inputs.get("__parents__", [])
    return {str(parent.id) for parent in inputs if hasattr(parent, "id")}


def close_previous_flow_run(former: str | None, flow_run_id: UUID) -> None:
    """Close the flow run of an earlier session and its open task runs in Prefect.

    If Prefect retries a flow run, both ids are equal, and only task runs are closed.
    """
    if former is None:
        return
    state: State[Any] = Crashed(message="its process was killed")
    with get_client(sync_client=True) as client:
        try:
            run = client.read_flow_run(UUID(former))
        except Exception:
            return  # on another server, or deleted there
        if former != str(flow_run_id):
            if run.state is None or run.state.type not in (StateType.RUNNING, StateType.PENDING):
                return
            client.set_flow_run_state(UUID(former), state, force=True)
    close_open_runs(UUID(former), state)


def finish_task_runs(
    pace: ServerPace, flow_run_id: UUID, n_task_runs: int, observer: Observer
) -> None:
    """Wait until Prefect has recorded the task runs of a flow run, then end the open ones."""
    drain_events()
    missing = pace.wait_until_recorded(n_task_runs)
    if missing:
        observer.note(f"the Prefect server has not recorded {missing} task runs")
    close_open_runs(flow_run_id, Crashed(message="its process ended before it did"))
