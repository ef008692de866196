"""Jobs and tasks on the workers of a pool: attempts, limits, and cancellation."""

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import distributed
import pytest
from pools import die, die_unless, local_pool, meet, wait_for_file
from processes import wait_for

from prefect_tune.flows.workers.dask_trials import DaskTrials, Job
from prefect_tune.flows.workers.pool import RunningTasks, WorkerPool
from prefect_tune.tasks.problem import StudyContext

pytestmark = pytest.mark.slow


def run_jobs(pool: WorkerPool, jobs: list[Job], **options: Any) -> list[Any]:
    """Run jobs as a study does."""
    context = StudyContext("jobs", None, None)  # type: ignore[arg-type] # not in use
    return DaskTrials(pool, context, None, 0).run_all(jobs, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def a_pool() -> Iterator[WorkerPool]:
    with local_pool(6) as pool:
        yield pool


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that jobs wait for."""
    return tmp_path / "gate"


@pytest.fixture
def pool(a_pool: WorkerPool, gate: Path) -> Iterator[WorkerPool]:
    """An idle pool with all slots; at the end, no job waits for the gate."""
    wait_for(lambda: a_pool.workers.update() or a_pool.n_slots == 6)
    yield a_pool
    gate.touch()
    wait_for(lambda: not any(a_pool.client.processing().values()))


def fail() -> None:
    raise ValueError("no such model")


def interrupt() -> None:
    raise KeyboardInterrupt


def test_jobs_run_in_parallel_and_return_results_in_order(pool, tmp_path) -> None:
    jobs = [Job(meet, {"folder": tmp_path, "number": n, "n": 6}) for n in range(6)]
    assert run_jobs(pool, jobs) == list(range(6))


def test_job_of_a_dead_worker_is_repeated_once_and_the_worker_replaced(pool, tmp_path) -> None:
    assert run_jobs(pool, [Job(die_unless, {"path": tmp_path / "died"})]) == ["alive"]
    with pytest.raises(RuntimeError, match="refit"):
        run_jobs(pool, [Job(die, {}, "refit")])
    wait_for(lambda: pool.workers.update() or pool.n_slots == 6)


@pytest.mark.parametrize(
    ("first", "options", "error", "named"),
    [
        (fail, {}, RuntimeError, "no such model"),
        (None, {"limit_seconds": 0.0}, TimeoutError, "takes long"),
        (None, {"check": interrupt}, KeyboardInterrupt, None),
    ],
)
def test_first_failure_ends_the_other_jobs(  # noqa: PLR0917
    pool, gate, first, options, error, named
) -> None:
    waits = Job(wait_for_file, {"path": gate}, "takes long")
    late = Job(Path.touch, {"self": gate.with_name("late")})
    jobs = [Job(first, {}) if first else waits, *[waits] * 5, late]
    with pytest.raises(error, match=named):
        run_jobs(pool, jobs, **{"limit_seconds": inf, **options})
    wait_for(lambda: not any(pool.client.processing().values()))  # without the gate
    assert not gate.with_name("late").exists()


def test_incomplete_scheduler_info_of_the_dask_client_hides_no_worker(pool, monkeypatch) -> None:
    look = distributed.Client._update_scheduler_info  # which asks for no workers by itself
    monkeypatch.setattr(distributed.Client, look.__name__, lambda client, **_: look(client))
    pool.workers.update(at_once=True)
    assert pool.n_slots == 6


def test_refused_worker_finishes_running_tasks(pool, gate) -> None:
    tasks: RunningTasks[int] = RunningTasks(pool)
    for number in range(6):
        tasks.submit(number, wait_for_file, {"path": gate})
    refused = next(iter(tasks)).worker
    assert pool.workers.refuse(refused) == 1
    gate.touch()
    ended = []
    wait_for(lambda: ended.extend(tasks.collect(0.2)) or len(ended) == 6)
    assert all(e.state is not None for e in ended)
    for number in range(6):
        tasks.submit(number, wait_for_file, {"path": gate})
    assert {task.worker for task in tasks} == {*pool.workers.threads}
