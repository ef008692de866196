"""Jobs on real workers: results, errors, deaths, time, and whoever wants them to end."""

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import distributed
import pytest
from pools import client_of, die, die_unless, pause, pool_of
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from processes import wait_for

from prefect_tune.flows.workers import jobs
from prefect_tune.flows.workers.jobs import run_job


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[distributed.Client]:  # noqa: ARG001 - it is asked for task runs
    with client_of(1) as client:
        yield client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_CHECK_SECONDS", 0.05)


def run(client: distributed.Client, task: Any, **options: Any) -> Any:
    parameters = options.pop("parameters", {})
    return run_job(pool_of(client, 1), uuid4(), task, parameters, **options)


def pids(client: distributed.Client) -> set[int]:
    """The processes of the workers that are there."""
    return set(client.run(os.getpid, on_error="ignore").values())


def test_the_result_is_returned(client) -> None:
    def task(number: int) -> State[int]:
        return Completed(data=number)

    assert run(client, task, parameters={"number": 7}) == 7


def test_what_the_task_raises_is_raised(client) -> None:
    def task() -> State[None]:
        return Failed(data=ValueError("not today"))

    with pytest.raises(ValueError, match="not today"):
        run(client, task)


def test_a_job_whose_worker_died_is_run_once_more(client, tmp_path) -> None:
    assert run(client, die_unless, parameters={"path": tmp_path / "was-here"}) == "alive"


def test_a_job_whose_worker_dies_again_fails(client) -> None:
    with pytest.raises(RuntimeError, match="the worker process died in 2 attempts"):
        run(client, die)


def test_a_job_over_its_time_is_ended_with_its_process(client) -> None:
    (pid,) = wait_for(lambda: pids(client))
    with pytest.raises(TimeoutError, match=r"took more than 0.2 s"):
        run(client, pause, parameters={"seconds": 1000}, limit_seconds=0.2)
    wait_for(lambda: pid not in pids(client))


def test_a_job_is_ended_by_what_is_called_while_it_runs(client) -> None:
    def check() -> None:
        if any(client.processing().values()):
            raise InterruptedError("enough")

    (pid,) = wait_for(lambda: pids(client))
    with pytest.raises(InterruptedError, match="enough"):
        run(client, pause, parameters={"seconds": 1000}, check=check)
    wait_for(lambda: pid not in pids(client))
