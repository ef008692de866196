"""`prefect-tune serve`: its deployments, their schedules, and runs as the UI and the API end them.

All tests share one process that serves until a test stops it: two served homes on one server would
take each other's runs.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any
from uuid import UUID

import psutil
import pytest
from inputs import write_table
from prefect.client.schemas.objects import State, StateDetails, StateType
from prefect.states import Cancelling
from prefect_api import artifacts, client_of, flow_runs, states, task_runs
from processes import run_json, started, wait_for
from serving import Served
from user_spaces import SLEEPING

from prefect_tune.deployments.serve import declared_deployments

SERVED = ("tune/healthcare", "retry/retry", "compare/compare", "promote/promote")
pytestmark = pytest.mark.timeout(1200)

OPEN = {"Running", "Pending", "Scheduled"}
ENDLESS = 400
"""More trials than a run comes to before it is ended."""
LONG = 280.0
"""Seconds in which a run starts or ends on a machine that does much else."""


@pytest.fixture(scope="module")
def served(server, tmp_path_factory) -> Iterator[Served]:
    with Served.at(server, tmp_path_factory.mktemp("served")) as served:
        (served.home / "slow.py").write_text(SLEEPING.format(seconds=0.4))
        write_table(served.home)
        yield served


def schedules(url: str) -> dict[str, bool]:
    with client_of(url) as client:
        found = [client.read_deployment_by_name(name) for name in SERVED]
    return {name: one.schedules[0].active for name, one in zip(SERVED, found, strict=True)}


def set_active(url: str, name: str, *, active: bool) -> None:
    with client_of(url) as client:
        found = client.read_deployment_by_name(name)
        client.update_deployment_schedule(found.id, found.schedules[0].id, active=active)


def start(served: Served, study: str, trials: int = ENDLESS) -> UUID:
    """Start a run of a study whose trials take seconds."""
    where = {"data": f"{served.home}/table.csv", "space": f"{served.home}/slow.py:space"}
    search = {"method": "random", "trials": trials, "workers": 2, "race": False, "no_cache": True}
    return served.start("tune/healthcare", **where, **search, target="target", study=study)


def suspend(served: Served, run: UUID) -> None:
    """Set the state that the UI sets."""
    timeout = datetime.now(UTC) + timedelta(hours=1)
    details = StateDetails(pause_timeout=timeout, pause_reschedule=True)
    served.set_state(run, State(type=StateType.PAUSED, name="Suspended", state_details=details))


def wait_for_state(served: Served, run: UUID, name: str) -> None:
    wait_for(lambda: served.run(run).state_name == name, LONG)


def configurations(served: Served, study: str) -> list[Any]:
    trials = sorted(served.trials(study), key=lambda trial: trial["number"])
    return [trial["query"]["configuration"] for trial in trials]


def assert_ended(served: Served, study: str, run: UUID) -> None:
    """The study was cut and can be resumed, and no process and no task run is left."""
    wait_for(lambda: served.state(study) == "interrupted", LONG)
    wait_for(lambda: served.family() == [], LONG)
    assert served.n_running(study) == 0
    assert not OPEN & set(states(task_runs(run, served.server)))


def test_every_deployment_has_a_form_and_runs_one_at_a_time(served) -> None:
    assert schedules(served.server) == dict.fromkeys(SERVED, False)  # resting at first
    with client_of(served.server) as client:
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


def test_a_run_is_suspended_resumed_and_cancelled_and_another_completes_its_study(served) -> None:
    run = start(served, "s")
    wait_for(lambda: served.n_told("s") >= 1, LONG)
    suspend(served, run)
    assert_ended(served, "s", run)
    assert served.run(run).state_name == "Suspended"
    n_told = served.n_told("s")
    assert len(served.trials("s")) == n_told  # running trials were told, none was cut
    served.resume(run)
    wait_for(lambda: served.n_told("s") > n_told, LONG)
    served.set_state(run, Cancelling())
    wait_for_state(served, run, "Cancelled")
    assert_ended(served, "s", run)
    asked = configurations(served, "s")
    assert n_told < served.n_told("s") < len(asked) < ENDLESS  # trials that were cut wait
    again = start(served, "s", trials=len(asked) + 1)
    wait_for_state(served, again, "Completed")
    assert served.n_told("s") == len(asked) + 1
    assert configurations(served, "s")[: len(asked)] == asked
    tags = set(served.run(again).tags)
    assert tags == {"tune", "healthcare", "study:s", "method:random"}
    nights = {a.key for a in artifacts(again, served.server)}  # of one key each, for their history
    assert nights == {f"tune-healthcare-{part}" for part in ("progress", "summary")}


@pytest.mark.full
def test_a_run_that_is_resumed_at_once_waits_for_its_former_process(served) -> None:
    run = start(served, "twice", trials=12)
    wait_for(lambda: served.n_told("twice") >= 1, LONG)
    suspend(served, run)
    served.resume(run)
    wait_for_state(served, run, "Completed")
    assert served.n_told("twice") == 12


@pytest.mark.full
def test_a_command_whose_run_is_cancelled_in_the_ui_ends(server, tmp_path) -> None:
    space = tmp_path / "slow.py"
    space.write_text(SLEEPING.format(seconds=0.4))
    words = ("run", write_table(tmp_path), "--target", "target", "--space", f"{space}:space")
    words += ("--method", "random", "--trials", ENDLESS, "--workers", 2, "--study", "by-hand")
    with started(*words, home=tmp_path, server=server) as process:
        (run,) = wait_for(
            lambda: [r for r in flow_runs(server) if "study:by-hand" in (r.tags or [])]
        )
        with client_of(server) as client:
            client.set_flow_run_state(run.id, Cancelling(), force=True)
        _, said = process.communicate(timeout=240)
    assert process.returncode == 130
    assert "--study by-hand" in said
    with client_of(server) as client:
        assert client.read_flow_run(run.id).state_name == "Cancelled"
    assert run_json("show", "by-hand", home=tmp_path)["state"] == "interrupted"


@pytest.mark.full
def test_one_ctrl_c_ends_the_study_and_all_processes(served) -> None:
    run = start(served, "ended")
    wait_for(lambda: served.n_told("ended") >= 1, LONG)
    family = served.family()
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(timeout=240) == 130
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == []
    assert (served.state("ended"), served.n_running("ended")) == ("interrupted", 0)
    assert served.run(run).state.is_final()
    assert not OPEN & set(states(task_runs(run, served.server)))


def test_deployments_keep_their_schedules_over_restarts(served) -> None:
    active = {**dict.fromkeys(SERVED, False), "tune/healthcare": True, "retry/retry": True}
    for name in ("tune/healthcare", "retry/retry"):
        set_active(served.server, name, active=True)
    with ExitStack() as stack:
        stack.callback(lambda: [set_active(served.server, n, active=False) for n in SERVED])
        if served.process.poll() is None:
            served.process.send_signal(signal.SIGINT)
            served.process.wait(timeout=120)
        assert schedules(served.server) == active  # stopping does not pause them
        stack.enter_context(Served.at(served.server, served.home))
        assert schedules(served.server) == active  # nor does starting again put them to rest


def test_parameters_of_deployments_are_those_of_their_flows() -> None:
    for flow, deployment in declared_deployments():
        assert flow.name == deployment["entrypoint"].partition(":")[2]
        for schedule in deployment["schedules"]:
            assert not schedule["active"]
            given = deployment["parameters"] | schedule.get("parameters", {})
            bound = signature(flow.fn).bind(**given)  # a schedule lacks none
            assert set(bound.arguments) == set(given)
    assert len(declared_deployments()) == len(SERVED)
