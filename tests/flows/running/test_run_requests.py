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

from prefect_tune.flows.running.run_requests import RunRequests

DEPLOYED = uuid4()
START = datetime(2030, 1, 1, tzinfo=UTC)


def after(states: list[State], deployment: UUID | None = DEPLOYED, seen: str = "") -> RunRequests:
    """The requests of a run that had these states; of missed ones, `seen` has a 0."""
    requests = RunRequests()
    for number, state in enumerate(states):
        dated = state.model_copy(
            update={"id": uuid4(), "timestamp": START + timedelta(seconds=number)}
        )
        if seen[number : number + 1] != "0":
            run = FlowRun(flow_id=uuid4(), deployment_id=deployment, state=dated)
            requests.note(run)
    return requests


@pytest.mark.parametrize("state", [Suspended(), Paused()], ids=["suspended", "paused"])
def test_a_suspended_run_ends_with_its_state(state) -> None:
    requests = after([Running(), state])
    assert not requests.may_ask
    with pytest.raises(Pause) as ended:
        requests.obey()
    assert ended.value.state.name == state.name


@pytest.mark.parametrize(
    ("states", "seen"),
    [
        ([Running(), Suspended(), Scheduled()], "111"),
        ([Running(), Suspended(), Scheduled(), Pending(), Running()], "11001"),
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
