"""Reactions of a study to the states of its flow run in Prefect."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
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

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("states", "missed", "is_deployed", "error"),
    [
        pytest.param([Suspended()], (), True, Pause, id="suspended"),
        pytest.param([Paused()], (), True, Pause, id="paused"),
        pytest.param([Suspended(), Scheduled()], (), True, Abort, id="rescheduled"),
        pytest.param(
            [Suspended(), Scheduled(), Pending(), Running()],
            (2, 3), True, Abort, id="resumed elsewhere unseen",
        ),
        pytest.param([Paused(), Failed()], (), True, Abort, id="expired"),
        pytest.param([Cancelled()], (), True, Abort, id="cancelled"),
        pytest.param([Cancelling()], (), False, Abort, id="cancelling without a deployment"),
        pytest.param([Cancelling()], (), True, None, id="cancelled by a runner"),
        pytest.param([Failed()], (), True, None, id="failed, known here first"),
    ],
)  # fmt: skip
def test_run_ends_if_suspended_or_taken_over(states, missed, is_deployed, error) -> None:
    requests = RunRequests()
    deployment = uuid4() if is_deployed else None
    for number, state in enumerate([Running(), *states]):
        time = START + timedelta(seconds=number)
        dated = state.model_copy(update={"id": uuid4(), "timestamp": time})
        if number not in missed:
            requests.note(FlowRun(flow_id=uuid4(), deployment_id=deployment, state=dated))
    assert requests.may_ask is (error is None)
    if error and is_deployed:  # what has no deployment asks the server first
        with pytest.raises(error):
            requests.obey()
