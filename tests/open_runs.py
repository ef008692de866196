"""Flow and task runs that are open on a Prefect server."""

from typing import Any
from uuid import UUID, uuid4

from prefect import flow, task
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import TaskRunResult
from prefect.states import Completed, Running


@flow
def study() -> None:
    """A flow that tests never call; only its runs are needed."""


@task
def step() -> None:
    """A task that tests never call; only its runs are needed."""


class OpenRuns:
    """A flow run with two open trials, each with an open step, and a finished step."""

    def __init__(self) -> None:
        with get_client(sync_client=True) as client:
            self.flow_run_id = client.create_flow_run(study, state=Running()).id
        self.one, self.other = self.add("trial 0"), self.add("trial 1")
        self.add("step of 0", self.one)
        self.add("step of 1", self.other)
        self.add("done", self.one, Completed())

    def add(self, name: str, parent: UUID | None = None, state: Any = None, n: int = 1) -> UUID:
        """Add `n` task runs, and return the last one."""
        with get_client(sync_client=True) as client:
            for _ in range(n):
                run = client.create_task_run(
                    step,
                    self.flow_run_id,
                    dynamic_key=str(uuid4()),
                    name=name,
                    state=state or Running(),
                    task_inputs={"__parents__": [TaskRunResult(id=parent)]} if parent else None,
                )
        return run.id
