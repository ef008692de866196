"""Flows called in an event loop, or with a study that a command has prepared."""

import asyncio
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from observing import Heard

from prefect_tune.flows.running.event_loop import apart_from_loop
from prefect_tune.flows.running.interrupts import check_interrupted
from prefect_tune.flows.starting.prepare import Handover
from prefect_tune.flows.study.progress import current_observer, observed_by
from prefect_tune.flows.workers.pool import RunningTasks


def in_loop(work: Callable[[], Any]) -> Any:
    async def called() -> Any:
        return apart_from_loop(work)

    return asyncio.run(called())


def test_flow_called_in_an_event_loop_runs_in_another_thread() -> None:
    async def here() -> int:
        return threading.get_ident()

    assert apart_from_loop(threading.get_ident) == threading.get_ident()
    assert in_loop(lambda: asyncio.run(here())) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        in_loop(lambda: 1 // 0)
    heard = Heard()
    with observed_by(heard):
        in_loop(lambda: current_observer().note("a"))
    assert heard.notes == ["a"]


def collect_nothing() -> None:
    pool: Any = SimpleNamespace()
    list(RunningTasks(pool).collect(0.01))


@pytest.mark.parametrize("wait_for_workers", [collect_nothing, check_interrupted])
def test_interrupt_ends_the_flow_at_the_next_wait(wait_for_workers) -> None:
    ended = []

    def work() -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        pause = threading.Event()
        try:
            with observed_by(Heard()):  # as `PipelineSearch.fit` does
                while True:
                    wait_for_workers()
                    pause.wait(0.01)
        except KeyboardInterrupt:
            ended.append("trials are put back")
            raise

    async def called() -> None:
        loop_handler = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a notebook
        try:
            apart_from_loop(work)
        finally:
            signal.signal(signal.SIGINT, loop_handler)

    with observed_by(Heard()), pytest.raises(KeyboardInterrupt):
        asyncio.run(called())
    assert ended == ["trials are put back"]


GIVEN = {"data": "https://host/t.csv?sig=***", "study": "one", "trials": 3}


def test_prepared_study_is_used_once_and_only_by_the_same_thread_and_parameters() -> None:
    """Signatures in URLs are ignored, and a copy in another process does not get the study."""
    handover: Handover[str] = Handover()
    with handover.offered(GIVEN | {"data": "https://host/t.csv?sig=geheim"}, "prepared"):
        with ThreadPoolExecutor(1) as other:
            assert other.submit(handover.take, GIVEN).result() is None
        assert pickle.loads(pickle.dumps(handover)).take(GIVEN) is None
        assert handover.take({**GIVEN, "trials": 4}) is None
        assert handover.take(GIVEN) == "prepared"
        assert handover.take(GIVEN) is None
    with handover.offered(GIVEN, "prepared"):
        pass
    assert handover.take(GIVEN) is None
