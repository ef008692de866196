"""`prefect.yaml` on a work pool, as the page on Prefect has it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from inputs import write_table
from prefect.states import Cancelling
from prefect_api import client_of, flow_runs, states, task_runs
from processes import environment, wait_for
from serving import Served
from source_tree import ROOT
from user_spaces import SLEEPING

PREFECT = Path(sys.executable).with_name("prefect")


@pytest.fixture
def prefect(server, tmp_path) -> Iterator[Callable[..., str]]:
    """Runs Prefect's command where the deployments are on a pool; both are removed at the end."""

    def run(*words: str) -> str:
        done = subprocess.run(
            [PREFECT, *words],
            cwd=ROOT,
            env=environment(tmp_path / "home", server),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("work-pool", "create", "local", "--type", "process", "--overwrite")
    run("--no-prompt", "deploy", "--prefect-file", "deployments/prefect.yaml", "--all")
    yield run
    with client_of(server) as client:  # the server is that of all tests
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)
        client.delete_work_pool("local")


@pytest.mark.full
def test_a_worker_of_a_pool_runs_the_deployment(server, prefect) -> None:
    small = {
        "data": "sklearn:iris",
        "space": "small",
        "method": "random",
        "trials": 1,
        "workers": 1,
    }
    given = [word for name, value in small.items() for word in ("--param", f"{name}={value}")]
    prefect("deployment", "run", "tune/healthcare", *given, "--tag", "of-a-pool")
    prefect("worker", "start", "--pool", "local", "--run-once")
    with client_of(server) as client:
        (run,) = (run for run in flow_runs(server) if "of-a-pool" in run.tags)
        assert run.state_name == "Completed"
        known = {"healthcare", "retry", "compare", "promote"}
        names = {one.name: one for one in client.read_deployments() if one.name in known}
        client.delete_flow_run(run.id)  # the server is that of all tests
    assert set(names) == known
    assert names["healthcare"].schedules[0].parameters == {"series": "healthcare"}
    assert names["retry"].concurrency_options.collision_strategy == "ENQUEUE"
    assert not any(schedule.active for one in names.values() for schedule in one.schedules)


@pytest.mark.full
@pytest.mark.usefixtures("prefect")
def test_a_run_that_is_cancelled_on_a_pool_leaves_nothing_behind(server, tmp_path) -> None:
    home = tmp_path / "home"
    data = write_table(tmp_path)
    (tmp_path / "slow.py").write_text(SLEEPING.format(seconds=0.6))
    here = {**environment(home, server), "PREFECT_WORKER_QUERY_SECONDS": "1"}
    worker = subprocess.Popen(
        [PREFECT, "worker", "start", "--pool", "local"], env=here, cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        pool = Served(server, home, worker)
        run = pool.start(
            "tune/healthcare", data=str(data), target="target", space=f"{tmp_path}/slow.py:space",
            method="random", trials=40, workers=2, study="cut",
        )  # fmt: skip
        wait_for(lambda: pool.n_told("cut") >= 1)
        pool.set_state(run, Cancelling())
        wait_for(lambda: pool.run(run).state_name == "Cancelled")
        wait_for(lambda: pool.family() == [])
    finally:
        worker.terminate()
        worker.wait(timeout=60)
    assert pool.state("cut") == "interrupted"
    assert pool.n_running("cut") == 0
    assert not {"Running", "Pending"} & set(states(task_runs(run, server)))
