"""Tasks under way on a pool that is made up: what is collected, and what is cancelled."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.states import Completed

from prefect_tune.flows.workers import under_way as under_way_module
from prefect_tune.flows.workers.nanny_reports import NannyReports
from prefect_tune.flows.workers.under_way import TasksUnderWay


class OwnFuture(Future):
    def release(self) -> None:
        """As Dask's."""


class Pool:
    """Where each task waits until a test ends it."""

    is_short, look_seconds = False, 0.0

    def __init__(self) -> None:
        self.futures: dict[str, Any] = {}
        self.looked_at: list[Any] = []

    def check(self) -> None: ...

    def end(self, futures: Any) -> None: ...

    def submit(self, task: str, *_: Any) -> Any:
        future = SimpleNamespace(task_run_id=uuid4(), wrapped_future=OwnFuture())
        return self.futures.setdefault(task, future)

    def cancel_stranded(self, future: Any) -> None:
        self.looked_at.append(future)

    def finish(self, task: str) -> None:
        self.futures[task].wrapped_future.set_result(Completed(data=task))


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def tasks(pool, monkeypatch) -> TasksUnderWay[str]:
    for settle in ("end_task_run", "reap"):
        monkeypatch.setattr(under_way_module, settle, lambda *_, **__: None)
    tasks: TasksUnderWay[str] = TasksUnderWay(pool, uuid4(), NannyReports())
    for name in "ab":
        tasks.submit(name, name, {}, name)
    return tasks


def test_tasks_that_ended_are_collected_once_and_the_others_stay(tasks, pool) -> None:
    pool.finish("b")
    assert [ended.task.subject for ended in tasks.collect(0.0)] == ["b"]
    assert [task.subject for task in tasks] == ["a"]
    assert list(tasks.collect(0.0)) == []


def test_while_none_ends_tasks_whose_worker_is_gone_are_looked_for(tasks, pool) -> None:
    assert list(tasks.collect(0.0)) == []
    assert pool.looked_at == list(pool.futures.values())


def test_a_task_that_ended_before_it_was_cut_is_not_collected(tasks, pool) -> None:
    pool.finish("a")
    assert tasks.cut("enough") == ["a", "b"]
    tasks.submit("c", "c", {}, "c")
    pool.finish("c")
    assert [ended.task.subject for ended in tasks.collect(0.0)] == ["c"]


def test_a_task_cut_between_two_that_are_collected_is_not_collected(tasks, pool) -> None:
    pool.finish("a")
    pool.finish("b")
    collected = tasks.collect(0.0)
    assert next(collected).task.subject == "a"
    assert tasks.cut("the first has failed") == ["b"]
    assert list(collected) == []
