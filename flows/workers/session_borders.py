"""Where a session begins and ends in Prefect: what a killed one left open, and what it leaves."""

from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State, StateType
from prefect.states import Crashed

from prefect_tune.flows.progress import Observer
from prefect_tune.flows.workers.reaping import reap
from prefect_tune.flows.workers.server_pace import ServerPace
from prefect_tune.tasks.worker.dask_runner import drain_events

__all__ = ["end_former_run", "settle_task_runs"]


def end_former_run(former: str | None, flow_run_id: UUID) -> None:
    """End the flow run of an earlier session, and what it left open, in Prefect's eyes.

    Args:
        former: Id of that flow run; None if there was none.
        flow_run_id: The flow run of this session; the same one when Prefect retries it.
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
    reap(UUID(former), state)


def settle_task_runs(
    pace: ServerPace, flow_run_id: UUID, n_task_runs: int, observer: Observer
) -> None:
    """Wait until Prefect has recorded the task runs of a flow run, and end those left open."""
    drain_events()
    missing = pace.wait_until_recorded(n_task_runs)
    if missing:
        observer.note(f"the Prefect server has not recorded {missing} task runs")
    reap(flow_run_id, Crashed(message="its process ended before it did"))
