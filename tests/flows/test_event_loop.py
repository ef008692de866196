"""Work where an event loop runs has a thread of its own, which an interrupt ends too."""

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from prefect_tune.flows.event_loop import apart_from_loop
from prefect_tune.flows.progress import current_observer, observed_by


class Recorder:
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def warn(self, text: str) -> None:
        self.note(text)

    def ended(self, trial: Any, progress: Any) -> None:
        self.notes.append(f"ended {trial} {progress}")

    def tick(self, progress: Any) -> None:
        self.notes.append(f"tick {progress}")


def in_loop(work: Callable[[], Any]) -> Any:
    async def called() -> Any:
        return apart_from_loop(work)

    return asyncio.run(called())


def test_without_a_loop_it_is_done_here() -> None:
    assert apart_from_loop(threading.get_ident) == threading.get_ident()


def test_in_a_loop_it_is_done_elsewhere_where_loops_may_be_run() -> None:
    async def here() -> int:
        return threading.get_ident()

    assert in_loop(lambda: asyncio.run(here())) != threading.get_ident()


def test_errors_come_back() -> None:
    with pytest.raises(ZeroDivisionError):
        in_loop(lambda: 1 // 0)


def test_the_observer_follows() -> None:
    recorder = Recorder()

    def work() -> None:
        current_observer().note("a")
        current_observer().ended("b", "c")
        current_observer().tick("d")

    with observed_by(recorder):
        in_loop(work)
    assert recorder.notes == ["a", "ended b c", "tick d"]


@pytest.mark.timeout(60)
def test_an_interrupt_ends_the_work_at_its_next_look() -> None:
    ended = []

    def work() -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        pause = threading.Event()
        try:
            while True:
                current_observer().tick("going on")
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

    with observed_by(Recorder()), pytest.raises(KeyboardInterrupt):
        asyncio.run(called())
    assert ended == ["trials are put back"]
