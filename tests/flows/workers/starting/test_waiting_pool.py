"""Pools that wait for local workers: how often they look, and when they give up."""

from types import SimpleNamespace
from typing import Any

import pytest

from prefect_tune.flows.workers import worker_pool
from prefect_tune.flows.workers.roster import NoWorkers
from prefect_tune.flows.workers.worker_pool import WorkerPool
from prefect_tune.flows.workers.worker_starts import WorkerStarts

ONE, OTHER = "tcp://nanny-1", "tcp://nanny-2"


class Time:
    """A clock that tests and sleeping advance."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.n_sleeps = 0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.n_sleeps += 1
        assert self.now < 2000, "waits for ever"


@pytest.fixture
def time(monkeypatch) -> Time:
    time = Time()
    monkeypatch.setattr(worker_pool, "monotonic", time)
    monkeypatch.setattr(worker_pool, "sleep", time.sleep)
    return time


@pytest.fixture
def starts(time) -> WorkerStarts:
    return WorkerStarts(time)


def pool_of(starts: WorkerStarts, *nannies: str, **options: Any) -> WorkerPool:
    """A pool whose scheduler lists a worker for each of some nannies."""
    workers = {f"{nanny}-worker": {"nanny": nanny} for nanny in nannies}
    client = SimpleNamespace(scheduler_info=lambda **_: {"workers": workers})
    return WorkerPool(SimpleNamespace(client=client), 2, starts=starts, **options)  # type: ignore[arg-type]


def test_a_pool_without_workers_waits_until_there_is_no_hope(starts, time) -> None:
    pool = pool_of(starts)
    pool.note_death()
    assert pool.count_slots() == 0
    starts.note_failure(ONE, "exited with code 3", time.now)
    assert pool.count_slots() == 0
    with pytest.raises(NoWorkers, match="the last one exited with code 3"):
        pool.wait_for_all(10)
    with pytest.raises(NoWorkers, match="exited with code 3"):
        pool.count_slots()
    with pytest.raises(NoWorkers, match="exited with code 3"):
        pool.check()
    assert time.now < 1000 + 60


def test_the_longer_a_pool_waits_the_less_often_it_looks(starts, time) -> None:
    pool = pool_of(starts)
    starts.note_failure(ONE, "exited with code 3", time.now)
    with pytest.raises(NoWorkers):
        pool.wait_for_all(10)
    assert time.now > 1000 + 40
    assert time.n_sleeps < 200


def test_a_pool_looks_often_again_once_its_workers_are_back(starts, time) -> None:
    pool = pool_of(starts, ONE, OTHER)
    pool.note_death()
    at_first = pool.look_seconds
    time.now += 10
    assert pool.look_seconds > at_first
    assert pool.count_slots() == 2
    assert pool.look_seconds == at_first
    pool.note_death()
    assert pool.look_seconds == at_first


def test_a_pool_goes_on_with_the_workers_that_are_up(starts, time) -> None:
    pool = pool_of(starts, ONE)
    starts.note_up(ONE)
    starts.note_failure(OTHER, "exited with code 3", time.now)
    time.now += 100
    pool.check()
    pool.wait_for_all(10)
    assert pool.count_slots() == 1


def test_a_reserved_pool_gives_its_worker_up_if_only_that_cannot_start(starts, time) -> None:
    benched: set[str] = set()
    starts.note_up(ONE)
    starts.note_failure(OTHER, "exited with code 3", time.now)
    one, other = (pool_of(starts, ONE, nanny=n, benched=benched) for n in (ONE, OTHER))
    assert (one.count_slots(), other.count_slots()) == (1, 0)
    time.now += 41
    assert one.count_slots() == 1
    with pytest.raises(NoWorkers, match="exited with code 3"):
        other.count_slots()
    assert benched == {OTHER}
