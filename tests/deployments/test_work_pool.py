"""`prefect.yaml` on a work pool, as described on the page about Prefect."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from inputs import write_table
from prefect.states import Cancelling
from prefect_api import client_of, states, task_runs
from processes import environment, wait_for
from serving import Served
from source_tree import ROOT
from user_spaces import SLEEPING

PREFECT = Path(sys.executable).with_name("prefect")


@pytest.fixture
def pool(server, tmp_path) -> Iterator[Served]:
    """A worker of a pool that has the deployments; everything is removed at the end."""
    home = tmp_path / "home"
    here = {**environment(home, server), "PREFECT_WORKER_QUERY_SECONDS": "1"}

    def run(*words: str) -> None:
        done = subprocess.run(
            [PREFECT, *words], cwd=ROOT, env=here, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    run("work-pool", "create", "local", "--type", "process", "--overwrite")
    run("--no-prompt", "deploy", "--prefect-file", "deployments/prefect.yaml", "--all")
    worker = subprocess.Popen(
        [PREFECT, "worker", "start", "--pool", "local"], env=here, cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield Served(server, home, worker)
    finally:
        worker.terminate()
        worker.wait(timeout=120)
        with client_of(server) as client:  # the server is that of all tests
            for deployment in client.read_deployments():
                client.delete_deployment(deployment.id)
            client.delete_work_pool("local")


@pytest.mark.full
def test_worker_of_a_pool_runs_the_deployments_and_cancels_a_run(server, pool, tmp_path) -> None:
    with client_of(server) as client:
        deployed = {one.name: one for one in client.read_deployments()}
    assert {"healthcare", "retry", "compare", "promote"} <= deployed.keys()
    assert deployed["healthcare"].schedules[0].parameters == {"series": "healthcare"}
    assert deployed["retry"].concurrency_options.collision_strategy == "ENQUEUE"
    assert not any(schedule.active for one in deployed.values() for schedule in one.schedules)

    (tmp_path / "slow.py").write_text(SLEEPING.format(seconds=0.3))
    given = {"data": str(write_table(tmp_path)), "target": "target", "method": "random"}
    given |= {"space": f"{tmp_path}/slow.py:space", "workers": 2}
    whole = pool.start("tune/healthcare", **given, trials=1, study="whole")
    wait_for(lambda: pool.run(whole).state_name == "Completed")
    cut = pool.start("tune/healthcare", **given, trials=400, study="cut")
    wait_for(lambda: pool.n_told("cut") >= 1)
    pool.set_state(cut, Cancelling())
    wait_for(lambda: pool.run(cut).state_name == "Cancelled")
    wait_for(lambda: pool.family() == [])
    assert (pool.state("whole"), pool.state("cut")) == ("complete", "interrupted")
    assert pool.n_running("cut") == 0
    assert not {"Running", "Pending"} & set(states(task_runs(cut, server)))
    with client_of(server) as client:
        for run in (whole, cut):
            client.delete_flow_run(run)
