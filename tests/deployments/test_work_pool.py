"""`prefect.yaml` on a work pool, as the page on Prefect has it."""

import subprocess
import sys
from pathlib import Path

import pytest
from prefect_api import client_of, flow_runs
from processes import environment
from source_tree import ROOT


@pytest.mark.full
def test_a_worker_of_a_pool_runs_the_deployment(server, tmp_path) -> None:
    def prefect(*words: str) -> str:
        done = subprocess.run(
            [Path(sys.executable).with_name("prefect"), *words],
            cwd=ROOT,
            env=environment(tmp_path / "home", server),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    prefect("work-pool", "create", "local", "--type", "process", "--overwrite")
    prefect("--no-prompt", "deploy", "--prefect-file", "deployments/prefect.yaml", "--all")
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
        client.delete_flow_run(run.id)  # the server is that of all tests
        for deployment in client.read_deployments():
            client.delete_deployment(deployment.id)
        client.delete_work_pool("local")
