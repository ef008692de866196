"""Pools of real worker processes and the jobs on them: deaths, time, preferences, the bench."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import distributed
import pytest
from distributed.core import Status
from pools import client_of, die, meet, pause, pool_of, started_child, worker_of
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from processes import is_alive, run_python, wait_for

from prefect_tune.flows.workers import jobs, worker_pool
from prefect_tune.flows.workers.fork_server import end_stopped_fork_server
from prefect_tune.flows.workers.jobs import Job, run_jobs
from prefect_tune.flows.workers.local_workers import local_cluster, local_settings
from prefect_tune.flows.workers.nanny_reports import NannyReports
from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.tasks.worker.dask_runner import WorkerFault, end_worker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(server) -> Iterator[distributed.Client]:  # noqa: ARG001 - it is asked for task runs
    with client_of(2) as client:
        yield client


def nothing() -> None:
    """Called while a pool is waited for."""


def processes_of(pool: WorkerPool) -> set[int]:
    """The processes that some tasks ran in."""
    return {pool.submit(os.getpid, {}).wrapped_future.result() for _ in range(4)}


def test_a_worker_that_is_leaving_takes_no_task_though_the_scheduler_still_lists_it(client) -> None:
    pool = pool_of(client)
    assert (pool.count_slots(), pool.is_short) == (2, False)
    assert pool_of(client, 1).count_slots() == 1
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGSTOP)
    pool.note_death(address)
    assert address in client.processing()
    assert (pool.count_slots(), pool.is_short) == (1, True)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pool.count_slots() == 2)
    assert not pool.is_short
    assert address not in client.processing()


def test_a_task_is_ended_with_its_process_and_no_other(client) -> None:
    pool = pool_of(client)
    ended, other = (pool.submit(pause, {"seconds": 1000}) for _ in range(2))
    (_, pid), (_, other_pid) = worker_of(client, ended), worker_of(client, other)
    pool.end([ended])
    assert ended.wrapped_future.cancelled()
    assert pool.is_short
    wait_for(lambda: not is_alive(pid))
    wait_for(lambda: pool.count_slots() == 2)
    assert not other.wrapped_future.done()
    assert other_pid in client.run(os.getpid).values()
    pool.end([other])


def test_a_task_goes_to_the_worker_that_it_prefers_if_that_is_free(client) -> None:
    pool = pool_of(client)
    pids = client.run(os.getpid)
    for address, pid in [*pids.items()] * 3:
        assert pool.submit(os.getpid, {}, address).wrapped_future.result() == pid
    busy = pool.submit(pause, {"seconds": 1000})
    address, pid = worker_of(client, busy)
    (other,) = set(pids.values()) - {pid}
    assert pool.submit(os.getpid, {}, address).wrapped_future.result(timeout=10) == other
    pool.end([busy])
    pool.wait_for_worker(nothing)  # the one that it prefers is gone by then
    assert pool.submit(os.getpid, {}, address).wrapped_future.result(timeout=10) != pid


def test_a_task_waits_for_no_worker_that_died_while_it_preferred_it(client) -> None:
    pool = pool_of(client)
    address, pid = next(iter(client.run(os.getpid).items()))
    lost = pool.submit(pause, {"seconds": 1000}, address)
    assert worker_of(client, lost) == (address, pid)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(distributed.scheduler.KilledWorker):
        lost.wrapped_future.result(timeout=30)  # whether it starts again is the search's decision


def test_workers_are_handed_out_to_one_pool_each(client) -> None:
    pool = pool_of(client)
    pool.prepare(nothing)
    with ThreadPoolExecutor(1) as thread, pool.reserved() as one:
        with pool.reserved() as other:
            assert one.is_short  # until its worker is known
            assert [wait_for(p.count_slots) for p in (one, other)] == [1, 1]
            (pid,), (other_pid,) = processes_of(one), processes_of(other)
            assert pid != other_pid
            third = thread.submit(pool.reserved().__enter__)
            with pytest.raises(TimeoutError):
                third.result(timeout=0.2)
        assert third.result(timeout=10).n_slots == 1


def test_workers_that_have_just_died_are_handed_out_once_they_are_back(client) -> None:
    pool = pool_of(client)
    assert pool.count_slots() == 2
    for pid in client.run(os.getpid).values():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not client.scheduler_info(n_workers=-1)["workers"])
    pool.prepare(nothing)
    assert pool.n_reserved == 2
    with pool.reserved() as mine:
        assert wait_for(mine.count_slots) == 1


def test_a_task_whose_only_worker_is_gone_is_cancelled(client) -> None:
    pool = pool_of(client)
    pool.prepare(nothing)
    with pool.reserved() as mine, pool.reserved() as other:
        assert (wait_for(mine.count_slots), wait_for(other.count_slots)) == (1, 1)
        running = mine.submit(pause, {"seconds": 1000})
        address, pid = worker_of(client, running)
        mine.cancel_stranded(running)
        assert not running.wrapped_future.done()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: address not in client.processing())
        stranded = mine.submit(os.getpid, {})  # to the worker that it has known
        mine.cancel_stranded(stranded)
        assert stranded.wrapped_future.cancelled()
        mine.note_death()
        wait_for(lambda: mine.count_slots() == 1)
        assert not other.is_short


def test_workers_that_do_not_come_back_are_not_waited_for_without_end(client, monkeypatch) -> None:
    monkeypatch.setattr(worker_pool, "_RETURN_SECONDS", 0.1)
    pool = pool_of(client, nanny="tcp://nobody")
    with pytest.raises(RuntimeError, match=r"within 0\.1 s"):
        pool.wait_for_worker(nothing)


def test_a_benched_worker_is_used_no_more_nor_the_one_that_takes_its_place(client) -> None:
    pool = pool_of(client)
    (address, pid), (other, other_pid) = client.run(os.getpid).items()
    assert pool.bench(address) == 1
    assert pool.count_slots() == 1
    assert processes_of(pool) == {other_pid}
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: address not in client.processing() and len(client.processing()) == 2)
    assert pool.count_slots() == 1
    assert processes_of(pool) == {other_pid}
    assert pool.bench(other) == 0


def test_a_pool_of_one_worker_has_none_when_that_is_benched(client) -> None:
    pool = pool_of(client)
    pool.prepare(nothing)
    with pool.reserved() as one:
        one.wait_for_worker(nothing)
        (pid,) = processes_of(one)
        address = next(a for a, p in client.run(os.getpid).items() if p == pid)
        assert one.bench(address) == 0
    assert pool.n_reserved == 1
    with pool.reserved() as other:
        other.wait_for_worker(nothing)
        assert pid not in processes_of(other)
        waiting = pool.reserved()
        with ThreadPoolExecutor(1) as thread:
            third = thread.submit(waiting.__enter__)  # which may get it
            other.bench(next(iter(other._find_workers())))
            with pytest.raises(NoWorkers, match="no usable worker"):
                third.result(timeout=60)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "_CHECK_SECONDS", 0.05)


def run(client: distributed.Client, task: Any, **options: Any) -> Any:
    job = Job(task, options.pop("parameters", {}))
    (result,) = run_jobs(pool_of(client, 1), uuid4(), [job], reports=NannyReports(), **options)
    return result


def run_all(client: distributed.Client, *jobs: Job, **options: Any) -> list[Any]:
    return run_jobs(pool_of(client), uuid4(), jobs, reports=NannyReports(), **options)


def fail() -> State[None]:
    return Failed(data=ValueError("not today"))


def pids(client: distributed.Client) -> set[int]:
    """The processes of the workers that are there."""
    return set(client.run(os.getpid, on_error="ignore").values())


def both(client: distributed.Client) -> set[int]:
    """The same once both are there."""
    found: set[int] = wait_for(lambda: now if len(now := pids(client)) == 2 else None)
    return found


def test_a_job_whose_worker_dies_again_fails_by_its_name(client) -> None:
    with pytest.raises(RuntimeError, match=r"trial 7: .*2 attempts"):
        run_all(client, Job(die, {}, "refit of trial 7"))


def test_a_job_that_workers_cannot_begin_fails_with_their_reason(client) -> None:
    def begin() -> None:
        raise WorkerFault("tcp://worker", "OSError: no space left")

    with pytest.raises(RuntimeError, match="no space left"):
        run(client, begin)


def test_a_job_over_its_time_is_ended_with_its_process(client) -> None:
    before = pids(client)
    with pytest.raises(TimeoutError, match=r"0\.2 s"):
        run(client, pause, parameters={"seconds": 1000}, limit_seconds=0.2)
    wait_for(lambda: len(before & pids(client)) == 1)


def test_a_job_is_ended_by_what_is_called_while_it_runs(client) -> None:
    def check() -> None:
        if any(client.processing().values()):
            raise InterruptedError("enough")

    before = both(client)
    with pytest.raises(InterruptedError, match="enough"):
        run(client, pause, parameters={"seconds": 1000}, check=check)
    wait_for(lambda: len(before & pids(client)) == 1)


def test_jobs_run_side_by_side_and_their_results_come_in_their_order(client, tmp_path) -> None:
    jobs = [Job(meet, {"folder": tmp_path, "number": i, "n": min(i + 1, 2)}) for i in (1, 0, 2)]
    assert run_all(client, *jobs) == [1, 0, 2]


def test_of_several_only_the_job_whose_worker_died_is_run_once_more(client, tmp_path) -> None:
    def once(name: str) -> State[str]:
        with (tmp_path / name).open("a") as file:
            file.write("x")
        if name == "dies" and (tmp_path / name).read_text() == "x":
            die()
        return Completed(data=(tmp_path / name).read_text())

    jobs = [Job(once, {"name": name}) for name in ("dies", "a", "b", "c")]
    assert run_all(client, *jobs) == ["xx", "x", "x", "x"]


def test_with_the_first_that_fails_the_others_are_ended(client) -> None:
    before = both(client)
    jobs = (Job(pause, {"seconds": 1000}), Job(fail, {}), Job(pause, {"seconds": 1000}))
    with pytest.raises(ValueError, match="not today"):
        run_all(client, *jobs)
    wait_for(lambda: len(before & pids(client)) == 1)  # that of the first went, and its job with it


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_a_worker_that_comes_back_is_forked_like_the_first(client) -> None:
    before = both(client)
    (parent,) = set(client.run(os.getppid).values())
    os.kill(min(before), signal.SIGKILL)
    wait_for(lambda: len(before & pids(client)) == 1 and len(pids(client)) == 2)
    assert set(client.run(os.getppid).values()) == {parent}


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere workers are spawned")
def test_a_stopped_fork_server_is_replaced_and_does_not_hold_up_the_end() -> None:
    with local_settings(), local_cluster(1) as cluster, distributed.Client(cluster) as client:
        assert not end_stopped_fork_server()  # as it runs
        (pid,), (parent,) = client.run(os.getpid).values(), client.run(os.getppid).values()
        os.kill(parent, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_for(end_stopped_fork_server)
        wait_for(lambda: pid not in client.run(os.getpid, on_error="ignore").values())
        client.wait_for_workers(1, timeout=60)
        (other,) = client.run(os.getppid).values()
        assert other != parent
        os.kill(other, signal.SIGSTOP)
    assert not is_alive(other)


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere processes have all cores")
def test_there_are_as_many_workers_as_cores_that_the_process_may_use() -> None:
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from prefect_tune.flows.workers.local_workers import local_cluster\n"
        "if __name__ == '__main__':\n"
        "    with local_cluster(None) as cluster: print(len(cluster.workers))"
    )
    assert run_python(program) == "1\n"


def test_a_worker_is_ended_with_all_it_started_and_one_that_took_its_place_is_left_alone(
    client,
) -> None:
    pool_of(client)
    (address, pid), *_ = client.run(os.getpid).items()
    child = client.submit(started_child, workers=[address], pure=False).result()
    busy = client.submit(pause, 1000, workers=[address], pure=False)
    wait_for(lambda: client.processing()[address])
    busy.cancel(force=True)
    client.run(end_worker, address, workers=[address], nanny=True)
    wait_for(lambda: address not in client.processing())
    wait_for(lambda: not is_alive(child), 30)
    wait_for(lambda: len(pids(client)) == 2)
    others = client.run(os.getpid)
    assert pid not in others.values()
    client.run(end_worker, address, workers=list(others), nanny=True)
    assert client.run(os.getpid) == others


@pytest.mark.full
def test_a_worker_that_its_nanny_has_not_heard_of_yet_is_ended_once_it_has() -> None:
    async def unheard(dask_worker: Any) -> None:
        process = dask_worker.process
        process.status = Status.starting
        process.running.clear()

        def hear() -> None:
            process.status = Status.running
            process.running.set()

        asyncio.get_running_loop().call_later(0.3, hear)

    with local_settings(), local_cluster(1) as cluster, distributed.Client(cluster) as client:
        ((address, pid),) = client.run(os.getpid).items()
        client.run(unheard, nanny=True)
        client.run(end_worker, address, workers=[address], nanny=True)
        wait_for(lambda: pid not in client.run(os.getpid, on_error="ignore").values(), 30)


def test_the_scheduler_gives_no_worker_up_because_the_clock_was_set(client) -> None:
    assert client.cluster.scheduler.worker_ttl is None
