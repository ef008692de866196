"""Pools of real worker processes that die, come back, and are handed out one by one."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import distributed
import pytest
from pools import client_of, pause, pool_of, worker_of
from processes import is_alive, wait_for

from prefect_tune.flows.workers import worker_pool
from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.worker_pool import WorkerPool


@pytest.fixture(scope="module")
def client() -> Iterator[distributed.Client]:
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
    address, pid = next(iter(client.run(os.getpid).items()))
    os.kill(pid, signal.SIGSTOP)
    pool.note_death(address)
    assert address in client.processing()
    assert (pool.count_slots(), pool.is_short) == (1, True)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pool.count_slots() == 2)
    assert not pool.is_short
    assert address not in client.processing()


def test_more_workers_than_slots_are_not_used(client) -> None:
    pool = pool_of(client, 1)
    pool.note_death()
    assert pool.count_slots() == 1


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


def test_a_worker_that_comes_back_is_waited_for(client) -> None:
    pool = pool_of(client)
    ended = pool.submit(pause, {"seconds": 1000})
    address, _ = worker_of(client, ended)
    pool.end([ended])
    pool.wait_for_worker(nothing)
    assert address not in client.processing()
    assert pool.submit(os.getpid, {}).wrapped_future.result() in client.run(os.getpid).values()


def test_workers_that_do_not_come_back_are_not_waited_for_without_end(client, monkeypatch) -> None:
    monkeypatch.setattr(worker_pool, "_RETURN_SECONDS", 0.1)
    pool = pool_of(client, nanny="tcp://nobody")
    with pytest.raises(RuntimeError, match=r"no worker came back within 0.1 s"):
        pool.wait_for_worker(nothing)


def test_what_is_called_while_a_pool_waits_may_end_it(client) -> None:
    def interrupt() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        pool_of(client, nanny="tcp://nobody").wait_for_worker(interrupt)


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
            with pytest.raises(NoWorkers, match="no worker can go on"):
                third.result(timeout=60)
