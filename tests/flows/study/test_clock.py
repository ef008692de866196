"""The time of a study over its sessions, and how little of it a killed process forgets."""

from time import sleep

import pytest

from prefect_tune.flows.study import lease as lease_module
from prefect_tune.flows.study.lease import StudyClock


class Sessions:
    """A ledger that keeps what it is told of sessions."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self.beats = 0

    def start_session(self, study: str) -> int:
        assert study == "s"
        self.seconds[len(self.seconds)] = 0.0
        return len(self.seconds) - 1

    def beat(self, session: int, seconds: float) -> None:
        self.beats += 1
        self.seconds[session] = seconds


def test_it_stands_still_until_it_runs() -> None:
    clock = StudyClock(Sessions(), "s", 7.0)  # type: ignore[arg-type]
    assert clock.seconds() == clock.seconds() == 7.0


def test_a_session_adds_to_those_before_and_the_ledger_has_it_at_its_end() -> None:
    sessions = Sessions()
    clock = StudyClock(sessions, "s", 7.0)  # type: ignore[arg-type]
    with clock.running():
        sleep(0.02)
        assert clock.seconds() > 7.02
    assert sessions.seconds[0] > 0.02


def test_the_ledger_is_told_while_a_session_lasts(monkeypatch) -> None:
    monkeypatch.setattr(lease_module, "_BEAT_SECONDS", 0.001)
    sessions = Sessions()
    clock = StudyClock(sessions, "s", 0.0)  # type: ignore[arg-type]
    with clock.running():
        while sessions.beats < 2:
            sleep(0.001)
        assert sessions.seconds[0] > 0


def test_a_session_that_fails_is_counted_too() -> None:
    sessions = Sessions()
    clock = StudyClock(sessions, "s", 0.0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="broken off"), clock.running():
        raise RuntimeError("broken off")
    assert sessions.seconds[0] > 0
