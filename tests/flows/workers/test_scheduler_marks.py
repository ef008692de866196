"""What flows leave on a scheduler of others', also those that were killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import distributed
import pytest
from external_clusters import ExternalCluster, external_cluster
from processes import runs_trial, wait_for

from prefect_tune.flows.workers.nanny_reports import limits_kept
from prefect_tune.tasks.problem import TrialLimits

TESTS = str(Path(__file__).parents[2])
FLOW = """
import sys
from uuid import uuid4

import distributed
from pools import noted
from prefect_tune.flows.workers.nanny_reports import limits_kept
from prefect_tune.tasks.problem import TrialLimits

flow_run = uuid4()
with (
    distributed.Client(sys.argv[1]) as client,
    limits_kept(client, flow_run, TrialLimits(seconds=1000)),
):
    client.submit(noted, uuid4(), flow_run, 1000, pure=False).result()
"""


@pytest.fixture(scope="module")
def external(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalCluster]:
    folder = tmp_path_factory.mktemp("dask")
    with external_cluster(folder, PYTHONPATH=TESTS) as external:
        external.start_worker()
        yield external


@pytest.fixture
def client(external: ExternalCluster) -> Iterator[distributed.Client]:
    with distributed.Client(external.address) as client:
        client.wait_for_workers(1, timeout=60)
        yield client


@contextmanager
def killed_flow(external: ExternalCluster, client: distributed.Client) -> Iterator[None]:
    """A flow that was killed while its trial ran."""
    flow = subprocess.Popen(
        [sys.executable, "-c", FLOW, external.address], env={**os.environ, "PYTHONPATH": TESTS}
    )
    try:
        wait_for(lambda: any(map(runs_trial, client.run(os.getpid, on_error="ignore").values())))
    finally:
        flow.send_signal(signal.SIGKILL)
        flow.wait()
    yield


def marks(client: distributed.Client) -> set[str]:
    """Names of plugins and topics of ours, on the scheduler and on the nannies."""

    def of_scheduler(dask_scheduler: Any) -> list[str]:
        return [*dask_scheduler.nanny_plugins, *dask_scheduler._broker._topics]

    def of_nanny(dask_worker: Any) -> list[str]:
        return list(dask_worker.plugins)

    found = client.run_on_scheduler(of_scheduler)
    for names in client.run(of_nanny, nanny=True).values():
        found += names
    return {name for name in found if "prefect-tune" in name}


def test_a_flow_takes_back_what_it_has_left(client) -> None:
    with limits_kept(client, uuid4(), TrialLimits(60)):
        assert len(marks(client)) == 1
    assert marks(client) == set()


def test_what_a_killed_flow_has_left_goes_with_its_trial(external, client) -> None:
    (pid,) = client.run(os.getpid).values()
    with killed_flow(external, client):
        assert marks(client)
        wait_for(lambda: not marks(client), 60)
        wait_for(lambda: list(client.run(os.getpid, on_error="ignore").values()) not in ([], [pid]))


def test_the_next_flow_takes_back_what_a_killed_one_has_left(external, client) -> None:
    with killed_flow(external, client):
        (left,) = marks(client)
        wait_for(lambda: is_alone(client))
        with limits_kept(client, uuid4(), TrialLimits(60)):
            (own,) = marks(client)
            assert own != left
        assert marks(client) == set()


def is_alone(client: distributed.Client) -> bool:
    """Whether the scheduler has no other client."""

    def clients(dask_scheduler: Any) -> list[str]:
        return [name for name in dask_scheduler.clients if name.startswith("Client-")]

    return len(client.run_on_scheduler(clients)) == 1
