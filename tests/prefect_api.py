"""Runs recorded by a Prefect server."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import Artifact, FlowRun, TaskRun
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings
from processes import SECRETS


@contextmanager
def client_of(url: str | None) -> Iterator[Any]:
    """Return a client of the server at an address, by default of the configured server."""
    named = {PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: SECRETS.get(url)} if url else {}
    with temporary_settings(named), get_client(sync_client=True) as client:
        yield client


def flow_runs(url: str | None = None) -> list[FlowRun]:
    with client_of(url) as client:
        found: list[FlowRun] = client.read_flow_runs()
    return found


def task_runs(flow_run_id: UUID, url: str | None = None) -> list[TaskRun]:
    """Return the task runs of a flow run, each once, even while the server receives more."""
    found: dict[UUID, TaskRun] = {}
    only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run_id]))
    with client_of(url) as client:
        for offset in count(0, 200):
            page = client.read_task_runs(flow_run_filter=only, limit=200, offset=offset)
            found |= {run.id: run for run in page}
            if len(page) < 200:
                break
    return list(found.values())


def artifacts(flow_run_id: UUID, url: str | None = None) -> list[Artifact]:
    of = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run_id]))
    with client_of(url) as client:
        found: list[Artifact] = client.read_artifacts(artifact_filter=of)
    return found


def states(runs: list[TaskRun]) -> Counter[str]:
    return Counter(run.state_name or "none" for run in runs)
