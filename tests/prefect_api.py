"""Runs that a Prefect server has recorded."""

from collections import Counter
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, TaskRun
from prefect.settings import PREFECT_API_URL, temporary_settings


def flow_runs(url: str | None = None) -> list[FlowRun]:
    with _Client(url) as client:
        return client.read_flow_runs()


def task_runs(flow_run_id: UUID, url: str | None = None) -> list[TaskRun]:
    found: list[TaskRun] = []
    only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    with _Client(url) as client:
        while page := client.read_task_runs(flow_run_filter=only, limit=200, offset=len(found)):
            found += page
    return found


def states(runs: list[TaskRun]) -> Counter[str]:
    return Counter(run.state_name or "none" for run in runs)


class _Client:
    def __init__(self, url: str | None) -> None:
        self._settings = temporary_settings({PREFECT_API_URL: url} if url else {})
        self._client: Any = None

    def __enter__(self) -> Any:
        self._settings.__enter__()
        self._client = get_client(sync_client=True)
        return self._client.__enter__()

    def __exit__(self, *args: object) -> None:
        self._client.__exit__(*args)
        self._settings.__exit__(*args)
