"""Task runs on a real server whose processes are gone, and a server that is gone itself."""

from uuid import uuid4

import pytest
from open_runs import OpenRuns
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelled, Crashed
from prefect_api import states, task_runs

from prefect_tune.flows.workers.reaping import end_task_run, reap
from prefect_tune.tasks.trial.evaluate import evaluate

pytestmark = pytest.mark.usefixtures("server")

CRASHED = Crashed(message="its process is gone")


def test_all_open_task_runs_are_ended_and_no_other() -> None:
    runs, others = OpenRuns(), OpenRuns()
    assert reap(runs.flow_run_id, CRASHED) == 4
    assert states(task_runs(runs.flow_run_id)) == {"Crashed": 4, "Completed": 1}
    assert states(task_runs(others.flow_run_id)) == {"Running": 4, "Completed": 1}


def test_of_some_trials_what_ran_inside_is_ended_too() -> None:
    runs = OpenRuns()
    assert reap(runs.flow_run_id, Cancelled(), of_trials=[runs.one]) == 2
    assert runs.states() == {
        "trial 0": "Cancelled", "step of 0": "Cancelled", "done": "Completed",
        "trial 1": "Running", "step of 1": "Running",
    }  # fmt: skip


def test_of_more_task_runs_than_one_request_gets_none_stays_open() -> None:
    runs, others = OpenRuns(), 225
    runs.add("step of 0", runs.one, n=others)
    runs.add("step of 1", runs.other, n=others)
    assert reap(runs.flow_run_id, CRASHED, of_trials=[runs.other]) == others + 2
    assert reap(runs.flow_run_id, CRASHED) == others + 2
    assert reap(runs.flow_run_id, CRASHED) == 0


def test_a_trial_that_the_server_never_heard_of_is_made_with_its_final_state() -> None:
    runs, unseen = OpenRuns(), uuid4()
    end_task_run(runs.flow_run_id, runs.one, evaluate, "trial 0", CRASHED)
    end_task_run(runs.flow_run_id, unseen, evaluate, "trial 7", CRASHED)
    assert runs.states() | {"trial 0": "Crashed", "trial 7": "Crashed"} == runs.states()
    assert unseen in {run.id for run in task_runs(runs.flow_run_id)}


def test_a_server_that_is_gone_is_a_warning_and_no_error(caplog) -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert reap(uuid4(), CRASHED) == 0
        end_task_run(uuid4(), uuid4(), evaluate, "trial 0", CRASHED)
    assert caplog.text.count("could not be set to Crashed") == 2
