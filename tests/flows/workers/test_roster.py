"""Workers of a scheduler in another process, which come, are checked, die and leave."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import distributed
import psutil
import pytest
from external_clusters import ExternalCluster, external_cluster
from pools import PlainRunner, noted_death, pause
from processes import wait_for
from studies import context_of

from prefect_tune.flows.workers import roster as module
from prefect_tune.flows.workers.external_workers import WorkerCheck
from prefect_tune.flows.workers.roster import NoWorkers, Roster
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.tasks.bad_input import BadInput
from prefect_tune.tasks.problem import TrialLimits
from prefect_tune.tasks.worker.readiness import worker_environment

TESTS = str(Path(__file__).parents[2])

Joined = Callable[..., tuple[WorkerPool, list[str]]]


@pytest.fixture
def external(tmp_path) -> Iterator[ExternalCluster]:
    with external_cluster(tmp_path / "dask", PYTHONPATH=TESTS) as external:
        external.start_worker()
        yield external


@pytest.fixture
def joined(external: ExternalCluster, tmp_path: Path) -> Iterator[Joined]:
    """Makes a pool of all workers that have passed, and the notes on them."""
    notes: list[str] = []
    context = context_of(tmp_path / "study")
    with distributed.Client(external.address) as client:
        client.wait_for_workers(1, timeout=120)

        def join(most: float = float("inf")) -> tuple[WorkerPool, list[str]]:
            check = WorkerCheck(
                external.address, context, TrialLimits(60), worker_environment(context)
            )
            roster = Roster(client, check, notes.append)
            roster.check_all()
            return WorkerPool(PlainRunner(client), most, roster=roster), notes

        yield join


def pids_of(pool: WorkerPool, n: int) -> set[int]:
    """The processes that so many tasks ran in, one by one."""
    pids = set()
    for _ in range(n):
        future = pool.submit(os.getpid, {})
        wait_for(lambda f=future: f.wrapped_future.done())
        pids.add(future.wrapped_future.result())
    return pids


def test_who_joins_is_checked_and_used_and_who_cannot_work_is_named_once(external, joined) -> None:
    pool, notes = joined()
    assert (pool.count_slots(), pool.n_slots) == (1, 1)
    external.start_worker("--no-nanny", "--nthreads", "1")
    external.start_worker()
    wait_for(lambda: (pool.count_slots(), len(notes)) == (2, 2))
    assert len([note for note in notes if "has no nanny" in note]) == 1
    assert len([note for note in notes if "has joined; 2 workers in all" in note]) == 1
    (refused,) = (
        address
        for address, worker in pool.client.scheduler_info(n_workers=-1)["workers"].items()
        if not worker["nanny"]
    )
    (pid,) = pool.client.run(os.getpid, workers=[refused]).values()
    busy = pool.submit(pause, {"seconds": 5})
    assert pid not in pids_of(pool, 5)
    pool.end([busy])
    for _ in range(30):
        pool.count_slots()
        pause(0.1)
    assert len([note for note in notes if "has no nanny" in note]) == 1


def test_who_did_not_pass_is_checked_again_and_its_reason_said_once(
    external, joined, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
    pool, notes = joined()
    is_away, n_checks = True, 0
    passes = WorkerCheck.__call__

    def check(self: WorkerCheck, client: distributed.Client, address: str) -> None:
        nonlocal n_checks
        n_checks += 1
        if is_away:
            raise BadInput("its store is away")
        passes(self, client, address)

    monkeypatch.setattr(WorkerCheck, "__call__", check)
    external.start_worker()
    wait_for(lambda: pool.count_slots() and n_checks >= 3)
    is_away = False
    wait_for(lambda: pool.count_slots() == 2)
    assert notes.count("its store is away; it is not used") == 1


def test_a_pool_of_one_worker_ends_when_that_has_left(external, joined, monkeypatch) -> None:
    pool, _ = joined()
    external.start_worker()
    wait_for(lambda: pool.count_slots() == 2)
    monkeypatch.setattr(module, "_RETURN_SECONDS", 0.5)
    pool.prepare(os.getpid)
    with pool.reserved() as one:
        wait_for(one.count_slots)
        (pid,) = pids_of(one, 1)
        families = {psutil.Process(p.pid): p for p in external.processes[1:]}
        external.stop_worker(
            next(p for f, p in families.items() if pid in {c.pid for c in f.children(True)})
        )
        with pytest.raises(NoWorkers, match="left"):
            wait_for(lambda: one.count_slots() < 0, 60)
    assert pool.n_reserved == 1


def test_a_worker_that_is_benched_is_used_no_more(external, joined) -> None:
    pool, _ = joined()
    external.start_worker()
    wait_for(lambda: pool.count_slots() == 2)
    first, second = pool.client.run(os.getpid).items()
    assert pool.bench(first[0]) == 1
    assert pool.count_slots() == 1
    assert pids_of(pool, 3) == {second[1]}
    assert pool.bench(second[0]) == 0


def test_slots_grow_no_further_than_was_asked_for(external, joined) -> None:
    pool, notes = joined(1)
    external.start_worker()
    wait_for(lambda: pool.count_slots() and notes)
    assert (pool.count_slots(), pool.n_slots) == (1, 1)


def test_who_leaves_is_noticed_and_without_workers_it_is_waited_but_not_for_ever(
    external, joined, monkeypatch
) -> None:
    pool, notes = joined()
    monkeypatch.setattr(module, "_RETURN_SECONDS", 0.5)
    (worker,) = external.processes[1:]
    external.stop_worker(worker)
    wait_for(lambda: (pool.count_slots(), pool.n_slots) == (0, 0))
    wait_for(lambda: pool.count_slots() == 0 and len(notes) == 2)
    assert "1 worker left; those that remain: 0" in notes
    assert any("it waits for one" in note for note in notes)
    external.start_worker()
    wait_for(lambda: pool.count_slots() == 1)
    (worker,) = external.processes[1:]
    external.stop_worker(worker)
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.5)
    with pytest.raises(NoWorkers, match=r"has had no worker .* the same command continues"):
        wait_for(lambda: pool.count_slots() < 0, 60)
    assert len([note for note in notes if "it waits for one" in note]) == 2


def test_a_task_whose_worker_dies_by_it_is_not_started_again_by_dask(
    external, joined, tmp_path
) -> None:
    pool, notes = joined()
    for _ in range(2):
        external.start_worker()
    wait_for(lambda: pool.count_slots() == 3)
    future = pool.submit(noted_death, {"folder": tmp_path / "starts"})

    former = pool._placed[future]
    # By the time that it is back, Dask would have started the task elsewhere.
    wait_for(lambda: pool.count_slots() == 3 and former not in pool._roster.addresses)
    pool.cancel_stranded(future)
    assert future.wrapped_future.cancelled()
    assert pids_of(pool, 3)
    assert len(list((tmp_path / "starts").iterdir())) == 1
    assert not [note for note in notes if "left" in note]
