"""Jobs and tasks on the workers of a pool: attempts, limits, and cuts."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest
from pools import die, die_unless, local_pool, meet, pause
from prefect.client.schemas.objects import State
from prefect.states import Completed
from processes import wait_for

from prefect_tune.flows.workers.dask_trials import DaskTrials, Job
from prefect_tune.flows.workers.pool import RunningTasks, WorkerPool
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow


def run_jobs(pool: WorkerPool, jobs: list[Job], **options: Any) -> list[Any]:
    """Run jobs as a study does."""
    context = StudyContext("jobs", None, None)  # type: ignore[arg-type] # not in use
    return DaskTrials(pool, context, None).run_all(jobs, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with local_pool(6) as pool:
        yield pool


@pytest.fixture(autouse=True)
def all_slots(pool: WorkerPool) -> None:
    wait_for(lambda: pool.workers.update() or pool.n_slots == 6, 60)


def touched(path: Path) -> State[str]:
    path.touch()
    return Completed(data=path.name)


def slow() -> State[str]:
    pause(2)
    return Completed(data="slow")


def fail() -> None:
    raise ValueError("no such model")


def test_jobs_run_at_once_and_their_results_are_in_order(pool, tmp_path) -> None:
    jobs = [Job(meet, {"folder": tmp_path, "number": n, "n": 6}) for n in range(6)]
    assert run_jobs(pool, jobs) == list(range(6))


def test_a_job_of_a_dead_worker_is_repeated_once(pool, tmp_path) -> None:
    assert run_jobs(pool, [Job(die_unless, {"path": tmp_path / "died"})]) == ["alive"]
    with pytest.raises(RuntimeError, match="refit"):
        run_jobs(pool, [Job(die, {}, "refit")])


@pytest.mark.parametrize(
    ("first", "limit_seconds", "error"),
    [(fail, inf, "no such model"), (pause, 0.5, "takes long")],
)
def test_the_first_failure_ends_the_other_jobs(pool, tmp_path, first, limit_seconds, error) -> None:
    of_first = Job(first, {} if first is fail else {"seconds": 3}, "takes long")
    others = [Job(pause, {"seconds": 3})] * 5
    late = Job(touched, {"path": tmp_path / "late"})
    with pytest.raises((RuntimeError, TimeoutError), match=error):
        run_jobs(pool, [of_first, *others, late], limit_seconds=limit_seconds)
    wait_for(lambda: not any(pool.client.processing().values()), 20)
    assert not (tmp_path / "late").exists()


def test_an_error_of_a_check_ends_all_jobs(pool) -> None:
    def check() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs(pool, [Job(pause, {"seconds": 3})] * 3, check=check)
    wait_for(lambda: not any(pool.client.processing().values()), 20)


def test_a_worker_that_is_refused_keeps_its_running_tasks(pool) -> None:
    tasks: RunningTasks[int] = RunningTasks(pool)
    for number in range(6):
        tasks.submit(number, slow, {})
    refused = next(iter(tasks)).worker
    assert pool.workers.refuse(refused) == 1
    ended = []
    wait_for(lambda: ended.extend(tasks.collect(0.2)) or len(ended) == 6, 30)
    assert all(e.state is not None for e in ended)
    assert {pool.address_of(pool.submit(pause, {"seconds": 0})) for _ in range(6)} == {
        *pool.workers.threads
    }
