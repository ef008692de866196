"""`prefect-tune serve`: the deployment as anyone starts it, and its schedule over a restart."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from inspect import signature

import pytest
from prefect_api import artifacts, client_of, flow_runs
from processes import environment, run_json, server_of, started, wait_for
from serving import serve_process, wait_until_served

from prefect_tune.deployments.serve import declared_deployments

START = ("deployment", "run", "tune/healthcare", "--watch")
PARAMETERS = [x for p in ("trials=3", "workers=2", "race=false") for x in ("--param", p)]


SERVED = ("tune/healthcare", "retry/retry", "compare/compare", "promote/promote")


def schedules(url: str) -> dict[str, bool]:
    with client_of(url) as client:
        found = [client.read_deployment_by_name(name) for name in SERVED]
    return {name: one.schedules[0].active for name, one in zip(SERVED, found, strict=True)}


def set_active(url: str, name: str, *, active: bool) -> None:
    with client_of(url) as client:
        found = client.read_deployment_by_name(name)
        client.update_deployment_schedule(found.id, found.schedules[0].id, active=active)


def is_served(url: str) -> bool:
    try:
        return bool(schedules(url))
    except Exception:
        return False


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)


@pytest.fixture
def serve(server, tmp_path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts `prefect-tune serve`, which uses the server of the tests."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(serve_process(server, tmp_path))


def test_deployments_keep_their_schedules_over_restarts(server, serve) -> None:
    first = serve()
    lines = wait_until_served(first)
    assert all(any(name in line for line in lines) for name in SERVED)
    assert schedules(server) == dict.fromkeys(SERVED, False)  # resting at first
    active = {**dict.fromkeys(SERVED, False), "tune/healthcare": True, "retry/retry": True}
    for name in ("tune/healthcare", "retry/retry"):
        set_active(server, name, active=True)
    stop(first)
    assert schedules(server) == active  # stopping does not pause them
    second = serve()
    wait_until_served(second)
    assert schedules(server) == active  # nor does starting again put them to rest
    for name in SERVED:
        set_active(server, name, active=False)


def test_every_deployment_has_a_form_and_runs_one_at_a_time(server, serve) -> None:
    process = serve()
    wait_until_served(process)
    with client_of(server) as client:
        for name in SERVED:
            found = client.read_deployment_by_name(name)
            fields = found.parameter_openapi_schema["properties"].values()
            assert all(field.get("description") for field in fields), name
            assert (found.description, found.tags) != ("", [])
            assert found.global_concurrency_limit.limit == 1
            assert found.concurrency_options.collision_strategy == "ENQUEUE"
        nightly = client.read_deployment_by_name("tune/healthcare")
    assert "series" not in nightly.parameters
    assert nightly.schedules[0].parameters == {"series": "healthcare"}


@pytest.mark.full
def test_the_deployment_runs_for_anyone(server, serve, tmp_path) -> None:
    serve()
    wait_for(lambda: is_served(server))
    started_run = subprocess.run(
        [sys.executable, "-m", "prefect", *START, *PARAMETERS], env=environment(tmp_path, server),
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert started_run.returncode == 0, started_run.stdout + started_run.stderr
    flow_run = next(r for r in flow_runs() if r.deployment_id is not None)
    assert flow_run.state_name == "Completed"
    study = flow_run.name.partition(" ")[0]  # the method follows
    assert set(flow_run.tags) == {"tune", "healthcare", f"study:{study}", "method:flash"}
    nights = {a.key for a in artifacts(flow_run.id)}  # of one key each, for their history
    assert nights == {f"tune-healthcare-{part}" for part in ("progress", "summary")}
    summary = run_json("show", study, home=tmp_path)
    assert (summary["n_trials"], summary["data"]) == (3, "cohort:demo")


@pytest.mark.slow
@pytest.mark.full
def test_serving_from_a_clean_home_starts_a_server_and_says_how_to_use_it(tmp_path) -> None:
    with started("serve", home=tmp_path) as process:
        lines = [process.stderr.readline()]
        while "prefect deployment run" not in lines[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        server = server_of(tmp_path)
        assert f"export PREFECT_API_URL={server['url']} PREFECT_API_AUTH_STRING=" in lines[-2]
        assert is_served(server["url"])
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert server_of(tmp_path) is None


def test_parameters_of_deployments_are_those_of_their_flows() -> None:
    for flow, deployment in declared_deployments():
        assert flow.name == deployment["entrypoint"].partition(":")[2]
        for schedule in deployment["schedules"]:
            assert not schedule["active"]
            given = deployment["parameters"] | schedule.get("parameters", {})
            bound = signature(flow.fn).bind(**given)  # a schedule lacks none
            assert set(bound.arguments) == set(given)
    assert len(declared_deployments()) == len(SERVED)
