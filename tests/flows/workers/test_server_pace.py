"""What is reported to a Prefect server that records as much as a test says."""

from typing import Any
from uuid import uuid4

import pytest

from prefect_tune.flows.workers import server_pace
from prefect_tune.flows.workers.server_pace import ServerPace


class Notes:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


class Counted(ServerPace):
    """The pace of a server that has recorded so many task runs, or does not answer."""

    def __init__(self, task_runs: Any = "auto") -> None:
        self.observer: Any = Notes()
        super().__init__(task_runs, uuid4(), self.observer)
        self.recorded: int | None = 0
        self.n_looks = 0

    def _count_recorded(self) -> int:
        self.n_looks += 1
        if self.recorded is None:
            raise ConnectionError("nobody is there")
        return self.recorded


@pytest.mark.parametrize("task_runs", ["steps", "misses", "trial"])
def test_what_the_user_asked_for_is_reported_and_waited_for(task_runs) -> None:
    pace = Counted(task_runs)
    assert not pace.may_submit(5_000)
    assert pace.report == task_runs
    pace.recorded = 4_500
    assert pace.may_submit(5_000)
    assert pace.observer.notes == []


def test_the_server_is_asked_now_and_then_and_always_while_it_is_behind() -> None:
    pace = Counted("steps")
    assert [pace.may_submit(n) for n in (1, 100, 199)] == [True] * 3
    assert pace.n_looks == 0
    assert pace.may_submit(200)
    assert pace.n_looks == 1
    assert not pace.may_submit(2_000)
    assert not pace.may_submit(2_001)
    assert pace.n_looks == 3


def test_auto_reports_less_while_the_server_is_behind_and_more_when_it_is_not() -> None:
    pace = Counted()
    assert pace.report == "steps"
    assert pace.may_submit(600)
    assert pace.report == "misses"
    assert pace.may_submit(900)
    assert pace.report == "trial"
    assert [note.split(":")[0] for note in pace.observer.notes] == [
        "the Prefect server is 600 task runs behind",
        "the Prefect server is 900 task runs behind",
    ]
    pace.recorded = 1_000
    assert pace.may_submit(1_150)
    assert pace.report == "misses"
    pace.recorded = 1_400
    assert pace.may_submit(1_400)
    assert pace.report == "steps"


def test_between_the_two_marks_nothing_changes() -> None:
    pace = Counted()
    pace.may_submit(600)
    pace.recorded = 500
    pace.may_submit(850)
    assert pace.report == "misses"


def test_a_server_that_does_not_answer_holds_up_nothing_and_is_told_of_once() -> None:
    pace = Counted()
    pace.recorded = None
    assert pace.may_submit(5_000)
    assert pace.may_submit(6_000)
    assert pace.wait_until_recorded(6_000) == 0
    assert pace.observer.notes == [
        "the Prefect server does not answer (nobody is there); the study goes on"
    ]


def test_the_end_waits_as_long_as_the_server_gets_on_with_it(monkeypatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(server_pace, "monotonic", lambda: clock[0])
    pace = Counted()

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        if pace.recorded is not None and pace.recorded < 8:
            pace.recorded += 1

    monkeypatch.setattr(server_pace, "sleep", sleep)
    assert pace.wait_until_recorded(8, timeout_seconds=0.3) == 0
    assert pace.wait_until_recorded(10, timeout_seconds=0.3) == 2
