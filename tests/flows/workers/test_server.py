"""Reports of trials to a Prefect server, their pace, and cleanup after sessions."""

import os
from typing import Any
from uuid import uuid4

import pytest
from observing import Heard
from open_runs import OpenRuns
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Crashed
from prefect_api import states, task_runs
from processes import run_python

from prefect_tune.flows.workers import server_pace
from prefect_tune.flows.workers.server_pace import (
    ServerPace,
    close_open_runs,
    close_previous_flow_run,
)


class Counted(ServerPace):
    """The pace for a server that has recorded some number of task runs, or does not answer."""

    def __init__(self, task_runs: Any = "auto") -> None:
        self.observer: Any = Heard()
        super().__init__(task_runs, uuid4(), self.observer)
        self.recorded: int | None = 0
        self.n_looks = 0

    def _count_recorded(self) -> int:
        self.n_looks += 1
        if self.recorded is None:
            raise ConnectionError("nobody is there")
        return self.recorded


def test_server_is_polled_at_intervals_and_always_while_behind() -> None:
    pace = Counted("steps")
    assert [pace.may_submit(n) for n in (1, 100, 199)] == [True] * 3
    assert pace.n_looks == 0
    assert pace.may_submit(200)
    assert pace.n_looks == 1
    assert not pace.may_submit(2_000)
    assert not pace.may_submit(2_001)
    assert pace.n_looks == 3
    pace.recorded = 1_500
    assert pace.may_submit(2_001)
    assert pace.report == "steps"  # as the user asked for
    assert pace.observer.notes == []


def test_automatic_mode_reports_less_while_the_server_is_behind() -> None:
    pace = Counted()
    assert pace.report == "steps"
    assert pace.may_submit(600)
    assert pace.report == "misses"
    assert pace.may_submit(900)
    assert pace.report == "trial"
    assert len(pace.observer.notes) == 2
    pace.recorded = 1_000
    assert pace.may_submit(1_150)
    assert pace.report == "misses"
    pace.recorded = 1_400
    assert pace.may_submit(1_400)
    assert pace.report == "steps"


def test_unresponsive_server_causes_no_delay_and_is_reported_once() -> None:
    pace = Counted()
    pace.recorded = None
    assert pace.may_submit(5_000)
    assert pace.may_submit(6_000)
    assert pace.wait_until_recorded(6_000) == 0
    assert ["nobody is there" in note for note in pace.observer.notes] == [True]


def test_flow_end_waits_while_the_server_makes_progress(monkeypatch) -> None:
    clock, pace = [0.0], Counted()

    def sleep(seconds: float) -> None:
        clock[0] += seconds
        pace.recorded = min((pace.recorded or 0) + 1, 8)

    monkeypatch.setattr(server_pace, "monotonic", lambda: clock[0])
    monkeypatch.setattr(server_pace, "sleep", sleep)
    assert pace.wait_until_recorded(8, timeout_seconds=0.3) == 0
    assert pace.wait_until_recorded(10, timeout_seconds=0.3) == 2


def state_of(runs: OpenRuns) -> StateType | None:
    with get_client(sync_client=True) as client:
        return client.read_flow_run(runs.flow_run_id).state_type


@pytest.mark.usefixtures("server")
def test_open_runs_of_killed_and_retried_sessions_are_closed() -> None:
    killed, retried, ended = OpenRuns(), OpenRuns(), OpenRuns()
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(ended.flow_run_id, Completed(), force=True)
    for former in (str(killed.flow_run_id), str(ended.flow_run_id), str(uuid4()), None):
        close_previous_flow_run(former, uuid4())
    close_previous_flow_run(str(retried.flow_run_id), retried.flow_run_id)
    assert (state_of(killed), state_of(retried)) == (StateType.CRASHED, StateType.RUNNING)
    for runs in (killed, retried):
        assert states(task_runs(runs.flow_run_id)) == {"Crashed": 4, "Completed": 1}
    assert states(task_runs(ended.flow_run_id)) == {"Running": 4, "Completed": 1}


@pytest.mark.usefixtures("server")
def test_missing_task_runs_are_noted_and_open_task_runs_closed() -> None:
    pace, runs = Counted("steps"), OpenRuns()
    pace._flow_run_id = runs.flow_run_id
    pace.wait_until_recorded = lambda n_reported: n_reported - 5  # type: ignore[method-assign]
    for n_task_runs in (7, 5):
        pace.finish(n_task_runs)
    assert ["2 task runs" in note for note in pace.observer.notes] == [True]
    assert states(task_runs(runs.flow_run_id)) == {"Crashed": 4, "Completed": 1}


CRASHED = Crashed(message="its process is gone")


@pytest.mark.full
@pytest.mark.usefixtures("server")
def test_open_task_runs_are_closed_even_if_many_requests_are_needed() -> None:
    runs = OpenRuns()
    runs.add("step of 0", runs.one, n=200)
    assert close_open_runs(runs.flow_run_id, CRASHED) == 4 + 200
    assert close_open_runs(runs.flow_run_id, CRASHED) == 0


@pytest.mark.usefixtures("server")
def test_missing_server_causes_a_warning_and_no_error(caplog) -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert close_open_runs(uuid4(), CRASHED) == 0
    assert caplog.text.count("could not be set to Crashed") == 1


@pytest.mark.slow
def test_global_retry_settings_do_not_apply_to_tasks_and_flows_of_studies() -> None:
    """Prefect reads its settings on import, so the test runs in a separate process."""
    code = """if True:
        from prefect import flow, task
        from prefect_tune.flows.compare import compare
        from prefect_tune.flows.tune import retry, tune
        from prefect_tune.tasks import prefect_tasks
        from prefect_tune.tasks.prefect_tasks import evaluate, step_task
        def theirs(): pass
        assert task(theirs).retries == flow(theirs).retries == 3
        ours = [one for one in vars(prefect_tasks).values() if isinstance(one, type(evaluate))]
        ours += [step_task("impute"), tune, retry, compare]
        print({one.retries for one in ours}, tune.with_options(retries=2).retries)
    """
    kinds = ("TASK", "TASKS", "FLOW", "FLOWS")
    of_site = {f"PREFECT_{kind}_DEFAULT_RETRIES": "3" for kind in kinds}
    assert run_python(code, env={**os.environ, **of_site}) == "{0} 2\n"
