"""The lean runner, and the stock runner that it falls back to, with real workers and a server."""

from functools import partial
from time import monotonic, sleep
from uuid import UUID

import pytest
from pools import die_unless
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed
from prefect_api import states, task_runs

from prefect_tune.flows.workers.local_workers import local_cluster
from prefect_tune.storage.notices import Notice, noticed_by
from prefect_tune.tasks.worker import dask_runner
from prefect_tune.tasks.worker import dask_runner as task_run_events
from prefect_tune.tasks.worker.dask_runner import LeanDaskTaskRunner, drain_worker

pytestmark = pytest.mark.usefixtures("server")

N_TRIALS = 6


def recorded(flow_run_id: UUID, n: int) -> list:
    """Task runs, once there are n in a final state."""
    since = monotonic()
    while True:
        runs = task_runs(flow_run_id)
        final = [r for r in runs if r.state is not None and r.state.is_final()]
        if len(final) == n or monotonic() - since > 20:
            return runs
        sleep(0.2)


def run_trials() -> tuple[UUID, list[str]]:
    """Six trials of two steps on one worker, the last one slow; which states it was seen in."""

    @task(cache_policy=NO_CACHE, persist_result=False, task_run_name="step {number}")
    def step(number):  # noqa: ARG001
        return Completed(name="Cached", message="nothing to do")

    @task(cache_policy=NO_CACHE, persist_result=False, task_run_name="trial {number}")
    def trial(number):
        step(0, return_state=True)
        if number == N_TRIALS - 1:
            sleep(3)
        step(1, return_state=True)
        return Completed(data=number)

    @flow
    def study():
        flow_run_id = UUID(str(flow_run.id))
        seen = []
        with local_cluster(1) as cluster, LeanDaskTaskRunner(cluster=cluster) as runner:
            futures = [runner.submit_lean(trial, {"number": n}) for n in range(N_TRIALS)]
            for future in futures[:-1]:
                future.wrapped_future.result()
            while not futures[-1].wrapped_future.done():
                seen += [r.state_name for r in task_runs(flow_run_id) if r.name == "trial 5"]
                sleep(0.2)
            runner.client.run(drain_worker)
            assert [f.wrapped_future.result().result() for f in futures] == list(range(N_TRIALS))
        return flow_run_id, seen

    return study()


@pytest.mark.parametrize("way", ["lean", pytest.param("stock", marks=pytest.mark.full)])
def test_every_task_run_is_recorded_with_its_times(way, monkeypatch) -> None:
    if way == "stock":
        monkeypatch.setattr(dask_runner, "is_supported", lambda: False)
    heard: list[Notice] = []
    with noticed_by(heard.append):
        flow_run_id, seen = run_trials()
    assert ("unknown Prefect" in {notice.kind for notice in heard}) == (way == "stock")
    runs = recorded(flow_run_id, 3 * N_TRIALS)
    assert states(runs) == {"Completed": N_TRIALS, "Cached": 2 * N_TRIALS}
    assert all(r.flow_run_id == flow_run_id for r in runs)
    assert all(r.expected_start_time and r.end_time for r in runs)
    assert "Running" in seen
    slow = next(r for r in runs if r.name == "trial 5")
    assert 2.9 < slow.total_run_time.total_seconds() < 10


def test_events_are_sent_as_they_are_where_prefect_has_no_such_sender(monkeypatch) -> None:
    monkeypatch.setattr(task_run_events, "_SENDER", "a_name_that_is_not_there")
    assert not task_run_events.hold_events_of_short_runs()


def test_a_worker_that_dies_as_it_is_prepared_holds_nothing_up(tmp_path) -> None:
    @flow
    def study() -> int:
        with local_cluster(1) as cluster, LeanDaskTaskRunner(cluster=cluster) as runner:
            (address,) = runner.client.scheduler_info(n_workers=-1)["workers"]
            runner.prepare_workers(partial(die_unless, tmp_path / "has died"), [address])
            future = runner.submit_lean(number, {})
            return future.wrapped_future.result().result()

    @task(cache_policy=NO_CACHE, persist_result=False)
    def number() -> State[int]:
        return Completed(data=1)

    assert study() == 1
