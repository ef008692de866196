"""What sessions leave behind on a real Prefect server."""

from typing import Any
from uuid import uuid4

import pytest
from open_runs import OpenRuns
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.states import Completed
from prefect_api import states, task_runs

from prefect_tune.flows.workers.reaping import end_former_run, settle_task_runs

pytestmark = pytest.mark.usefixtures("server")


def state_of(runs: OpenRuns) -> StateType | None:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(runs.flow_run_id).state_type


def test_the_run_of_a_killed_session_is_ended_with_what_it_left_open() -> None:
    killed = OpenRuns()
    end_former_run(str(killed.flow_run_id), uuid4())
    assert state_of(killed) == StateType.CRASHED
    assert states(task_runs(killed.flow_run_id)) == {"Crashed": 4, "Completed": 1}


def test_a_run_that_prefect_retries_stays_and_what_its_first_try_left_open_is_ended() -> None:
    retried = OpenRuns()
    end_former_run(str(retried.flow_run_id), retried.flow_run_id)
    assert state_of(retried) == StateType.RUNNING
    assert states(task_runs(retried.flow_run_id)) == {"Crashed": 4, "Completed": 1}


def test_a_run_that_has_ended_or_that_this_server_does_not_know_is_left_alone() -> None:
    ended = OpenRuns()
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(ended.flow_run_id, Completed(), force=True)
    end_former_run(str(ended.flow_run_id), uuid4())
    assert states(task_runs(ended.flow_run_id)) == {"Running": 4, "Completed": 1}
    end_former_run(str(uuid4()), uuid4())
    end_former_run(None, uuid4())


def test_at_the_end_missing_task_runs_are_noted_and_open_ones_ended() -> None:
    class Pace:
        def wait_until_recorded(self, n_reported: int) -> int:
            return n_reported - 5

    class Observer:
        def note(self, text: str) -> None:
            notes.append(text)

    notes: list[str] = []
    runs = OpenRuns()
    pace: Any = Pace()
    observer: Any = Observer()
    settle_task_runs(pace, runs.flow_run_id, 7, observer)
    assert notes == ["the Prefect server has not recorded 2 task runs"]
    assert states(task_runs(runs.flow_run_id)) == {"Crashed": 4, "Completed": 1}
    settle_task_runs(pace, runs.flow_run_id, 5, observer)
    assert len(notes) == 1
