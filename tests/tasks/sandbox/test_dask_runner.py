"""The lean Dask runner and its stock fallback, with real workers and a server."""

from pathlib import Path
from uuid import UUID

import pytest
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.states import Completed
from prefect_api import states, task_runs
from processes import wait_for

from prefect_tune.flows.workers.clusters import local_cluster
from prefect_tune.storage.notices import Notice, noticed_by
from prefect_tune.tasks.sandbox import dask_runner
from prefect_tune.tasks.sandbox.dask_runner import LeanDaskTaskRunner, end_sandboxes

pytestmark = pytest.mark.usefixtures("server")


def run_trials(gate: Path) -> UUID:
    """Run two trials of two steps in a slot; the second trial ends once Prefect has seen it run."""

    @task(cache_policy=NO_CACHE, persist_result=False, task_run_name="step {number}")
    def step(number):  # noqa: ARG001
        return Completed(name="Cached", message="nothing to do")

    @task(cache_policy=NO_CACHE, persist_result=False, task_run_name="trial {number}")
    def trial(number):
        step(0, return_state=True)
        wait_for(lambda: number == 0 or gate.exists())
        step(1, return_state=True)
        return Completed(data=number)

    @flow
    def study():
        flow_run_id = UUID(str(flow_run.id))
        with local_cluster(1) as (cluster, _), LeanDaskTaskRunner(cluster=cluster) as runner:
            (at,) = runner.client.nthreads()
            first = runner.submit_lean(trial, {"number": 0}, at)
            assert first.wrapped_future.result().result() == 0
            second = runner.submit_lean(trial, {"number": 1}, at)
            now = ("trial 1", "Running")
            wait_for(lambda: now in {(r.name, r.state_name) for r in task_runs(flow_run_id)})
            gate.touch()
            assert second.wrapped_future.result().result() == 1
            runner.client.run(end_sandboxes)
        return flow_run_id

    return study()


@pytest.mark.parametrize("way", ["lean", pytest.param("stock", marks=pytest.mark.full)])
def test_every_task_run_is_recorded_with_start_and_end_times(way, monkeypatch, tmp_path) -> None:
    if way == "stock":
        monkeypatch.setattr(dask_runner, "is_supported", lambda: False)
    heard: list[Notice] = []
    with noticed_by(heard.append):
        flow_run_id = run_trials(tmp_path / "gate")
    assert ("unknown Prefect" in {notice.kind for notice in heard}) == (way == "stock")
    wait_for(lambda: states(task_runs(flow_run_id)) == {"Completed": 2, "Cached": 4})
    for run in task_runs(flow_run_id):
        assert run.expected_start_time
        assert run.end_time >= run.start_time
