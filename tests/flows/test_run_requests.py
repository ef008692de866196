"""What a study makes of the states that its flow run has in Prefect."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import Abort, Pause
from prefect.states import (
    Cancelled,
    Cancelling,
    Failed,
    Paused,
    Pending,
    Running,
    Scheduled,
    Suspended,
)

from prefect_tune.flows import run_requests
from prefect_tune.flows.run_requests import RunRequests
from prefect_tune.flows.study import lease
from prefect_tune.flows.study.lease import StudyClock

DEPLOYED = uuid4()
START = datetime(2030, 1, 1, tzinfo=UTC)


def after(states: list[State], deployment: UUID | None = DEPLOYED, seen: str = "") -> RunRequests:
    """The requests of a run that had these states; of missed ones, `seen` has a 0."""
    requests, history = RunRequests(), []
    for number, state in enumerate(states):
        dated = state.model_copy(
            update={"id": uuid4(), "timestamp": START + timedelta(seconds=number)}
        )
        history.append(dated)
        if seen[number : number + 1] != "0":
            run = FlowRun(flow_id=uuid4(), deployment_id=deployment, state=dated)
            requests.note(run, lambda: history)
    return requests


def test_a_pause_is_waited_for_and_its_end_too(monkeypatch) -> None:
    requests = after([Running(), Paused()])
    assert not requests.may_ask
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(len(ticks))
        requests.is_paused = len(ticks) < 3

    monkeypatch.setattr(run_requests, "_TICK_SECONDS", 0.0)
    requests.obey(tick)
    assert ticks == [0, 1, 2]
    assert after([Running(), Paused(), Running()]).may_ask


def test_a_suspended_run_ends_with_its_state() -> None:
    with pytest.raises(Pause) as ended:
        after([Running(), Suspended()]).obey()
    assert ended.value.state.name == "Suspended"


@pytest.mark.parametrize(
    ("states", "seen"),
    [
        ([Running(), Suspended(), Scheduled()], "111"),
        ([Running(), Suspended(), Scheduled(), Pending(), Running()], "10001"),
        ([Running(), Paused(), Failed()], "111"),
        ([Running(), Cancelled()], "11"),
    ],
    ids=["rescheduled", "resumed elsewhere unseen", "expired", "cancelled"],
)
def test_a_run_that_is_no_longer_ours_ends(states, seen) -> None:
    requests = after(states, seen=seen)
    assert requests.is_ended
    with pytest.raises(Abort):
        requests.obey()


@pytest.mark.parametrize("state", [Cancelling(), Failed()], ids=["cancelling", "failed"])
def test_a_study_of_a_deployment_is_not_ended_by_other_states(state) -> None:
    assert after([Running(), state]).may_ask  # a runner cancels it; what fails is known here first


def test_a_run_without_a_deployment_obeys_cancelling() -> None:
    assert after([Running(), Cancelling()], deployment=None).is_ended


def test_the_time_of_a_pause_does_not_count(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr(lease, "monotonic", lambda: now[0])
    clock = StudyClock(ledger=None, study="s", spent_seconds=5.0)
    clock._started = 90.0
    with clock.stopped():
        now[0] += 1000
        assert clock.seconds() == 15.0
    now[0] += 1
    assert clock.seconds() == 16.0
