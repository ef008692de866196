"""Jobs on real workers: results, errors, deaths, time, and whoever wants them to end."""

import os
from collections.abc import Iterator
from time import sleep
from typing import Any
from uuid import uuid4

import distributed
import pytest
from pools import client_of, die, die_unless, meet, pause, pool_of
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from processes import wait_for

from prefect_tune.flows.workers import jobs
from prefect_tune.flows.workers.jobs import Job, run_jobs
from prefect_tune.flows.workers.nanny_reports import NannyReports
from prefect_tune.tasks.worker.dask_runner import WorkerFault


@pytest.fixture(scope="module")
def client(server: str) -> Iterator[distributed.Client]:  # noqa: ARG001 - it is asked for task runs
    with client_of(1) as client:
        yield client


@pytest.fixture(scope="module")
def two(server: str) -> Iterator[distributed.Client]:  # noqa: ARG001 - it is asked for task runs
    with client_of(2) as client:
        yield client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_CHECK_SECONDS", 0.05)


def run(client: distributed.Client, task: Any, **options: Any) -> Any:
    job = Job(task, options.pop("parameters", {}))
    (result,) = run_jobs(pool_of(client, 1), uuid4(), [job], reports=NannyReports(), **options)
    return result


def run_all(client: distributed.Client, *jobs: Job, **options: Any) -> list[Any]:
    return run_jobs(pool_of(client), uuid4(), jobs, reports=NannyReports(), **options)


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


def test_a_job_that_workers_cannot_begin_fails_with_their_reason(client) -> None:
    def begin() -> None:
        raise WorkerFault("tcp://worker", "OSError: no space left")

    with pytest.raises(RuntimeError, match=r"^OSError: no space left$"):
        run(client, begin)


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


def test_jobs_run_side_by_side_and_their_results_come_in_their_order(two, tmp_path) -> None:
    jobs = [Job(meet, {"folder": tmp_path, "number": i, "n": min(i + 1, 2)}) for i in (1, 0, 2)]
    assert run_all(two, *jobs) == [1, 0, 2]


def test_never_more_of_them_are_under_way_than_there_are_slots(two, tmp_path) -> None:
    def count(number: int) -> State[int]:
        here = tmp_path / f"under-way-{number}"
        here.touch()
        sleep(0.05)
        n = len(list(tmp_path.glob("under-way-*")))
        here.unlink()
        return Completed(data=n)

    found = run_all(two, *(Job(count, {"number": i}) for i in range(8)))
    assert max(found) == 2


def test_of_several_only_the_job_whose_worker_died_is_run_once_more(two, tmp_path) -> None:
    def once(name: str) -> State[str]:
        with (tmp_path / name).open("a") as file:
            file.write("x")
        if name == "dies" and (tmp_path / name).read_text() == "x":
            die()
        return Completed(data=(tmp_path / name).read_text())

    jobs = [Job(once, {"name": name}) for name in ("dies", "a", "b", "c")]
    assert run_all(two, *jobs) == ["xx", "x", "x", "x"]


def test_with_the_first_that_fails_the_others_are_ended(two) -> None:
    def fail() -> State[None]:
        return Failed(data=ValueError("not today"))

    before = wait_for(lambda: found if len(found := pids(two)) == 2 else None)
    with pytest.raises(ValueError, match="not today"):
        run_all(two, Job(pause, {"seconds": 1000}), Job(fail, {}), Job(pause, {"seconds": 1000}))
    wait_for(lambda: len(before & pids(two)) == 1)  # that of the first went, and its job with it


def test_a_job_that_dies_again_or_takes_too_long_is_named(two) -> None:
    with pytest.raises(RuntimeError, match=r"^refit of trial 7: the worker process died in 2"):
        run_all(two, Job(die, {}, "refit of trial 7"))
    with pytest.raises(TimeoutError, match=r"^refit of trial 8: took more than 0.2 s"):
        run_all(two, Job(pause, {"seconds": 1000}, "refit of trial 8"), limit_seconds=0.2)
