"""`prefect-tune serve`: deployments, schedules, automations, and ways to end a run.

All tests share one process that serves until the last test stops it.
"""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from inspect import signature
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
import yaml
from inputs import write_table
from prefect.blocks.webhook import Webhook
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.objects import State, StateDetails, StateType
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.events.schemas.automations import AutomationCore
from prefect.runner import Runner
from prefect.states import Cancelling
from prefect_api import artifacts, client_of, flow_runs, states, task_runs
from processes import environment, run_json, server_of, started, wait_for
from serving import Served
from source_tree import ROOT
from user_spaces import PRELUDE, SLEEPING

import prefect_tune.deployments
from prefect_tune.deployments import serve
from prefect_tune.deployments.serve import declared_deployments, serve_deployments

SERVED = ("tune/healthcare", "retry/retry", "compare/compare", "promote/promote")
pytestmark = pytest.mark.timeout(1200)

OPEN = {"Running", "Pending", "Scheduled"}
ENDLESS = 400
"""More trials than a run comes to before it is ended."""
LONG = 280.0
"""Seconds in which a run starts or ends on a machine that does much else."""


FAILING = f"""{PRELUDE}

class Fails(GaussianNB):
    def fit(self, X, y):
        raise RuntimeError("postgresql://u:sw0rdfish@host/db refused")


space = models(one("fails", Fails, SMOOTHING))
"""
SHIPPED = Path(prefect_tune.deployments.__file__).parent / "automations.yaml"


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    """Serve with a separate server, which has event services."""
    with Served.at(None, tmp_path_factory.mktemp("served")) as served:
        (served.home / "slow.py").write_text(SLEEPING.format(seconds=0.4))
        (served.home / "failing.py").write_text(FAILING)
        write_table(served.home)
        yield served


def shipped(**blocks: UUID) -> list[dict[str, Any]]:
    """Return the shipped automations, reduced to actions that use these blocks."""
    text = SHIPPED.read_text()
    for name, block in blocks.items():
        text = text.replace(f"ID-OF-{name.upper()}", str(block))
    documents = yaml.safe_load(text)["automations"]
    for document in documents:
        actions = document["actions"]
        document["actions"] = [a for a in actions if "ID-OF" not in a["block_document_id"]]
    return documents


@contextmanager
def endpoint() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Start a small server, and yield its address and received requests."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", received
        server.shutdown()


def start(served: Served, study: str, trials: int = ENDLESS) -> UUID:
    """Start a run of a study whose trials take seconds."""
    where = {"data": f"{served.home}/table.csv", "space": f"{served.home}/slow.py:space"}
    search = {"method": "random", "trials": trials, "workers": 2, "race": False, "no_cache": True}
    return served.start("tune/healthcare", **where, **search, target="target", study=study)


def suspend(served: Served, run: UUID) -> None:
    """Suspend a run by setting the same state as the UI."""
    timeout = datetime.now(UTC) + timedelta(hours=1)
    details = StateDetails(pause_timeout=timeout, pause_reschedule=True)
    served.set_state(run, State(type=StateType.PAUSED, name="Suspended", state_details=details))


def wait_for_state(served: Served, run: UUID, name: str) -> None:
    wait_for(lambda: served.run(run).state_name == name, LONG)


def configurations(served: Served, study: str) -> list[Any]:
    trials = sorted(served.trials(study), key=lambda trial: trial["number"])
    return [trial["query"]["configuration"] for trial in trials]


def assert_ended(served: Served, study: str, run: UUID) -> None:
    """Check that the study can be resumed, and left no process or open task run."""
    wait_for(lambda: served.state(study) == "interrupted", LONG)
    wait_for(lambda: served.family() == [], LONG)
    assert served.n_running(study) == 0
    assert not OPEN & set(states(task_runs(run, served.server)))


def test_deployments_have_forms_and_keep_schedules_across_restarts(server, monkeypatch) -> None:
    async def return_at_once(runner: Runner) -> None:
        assert not runner.pause_on_shutdown  # stopping does not pause schedules

    monkeypatch.setattr(serve, "_run_until_signal", return_at_once)
    active = dict.fromkeys(SERVED, False)  # resting at first
    for name in (*SERVED[:2], None):
        serve_deployments(limit=1, say=lambda _: None)
        with client_of(server) as client:
            found = {name: client.read_deployment_by_name(name) for name in SERVED}
            assert {name: one.schedules[0].active for name, one in found.items()} == active
            if name is not None:
                schedule = found[name].schedules[0].id
                client.update_deployment_schedule(found[name].id, schedule, active=True)
                active[name] = True
    for name, one in found.items():
        with client_of(server) as client:
            client.update_deployment_schedule(one.id, one.schedules[0].id, active=False)
        fields = one.parameter_openapi_schema["properties"].values()
        assert all(field.get("description") for field in fields), name
        assert (one.description, one.tags) != ("", [])
        assert one.global_concurrency_limit.limit == 1
        assert one.concurrency_options.collision_strategy == "ENQUEUE"
    nightly = found["tune/healthcare"]
    assert "series" not in nightly.parameters
    assert nightly.schedules[0].parameters == {"series": "healthcare"}


@pytest.mark.slow
def test_run_can_be_suspended_resumed_canceled_and_completed_by_a_new_run(served) -> None:
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


@pytest.mark.slow
@pytest.mark.full
def test_immediately_resumed_run_waits_for_the_former_process(served) -> None:
    run = start(served, "twice", trials=12)
    wait_for(lambda: served.n_told("twice") >= 1, LONG)
    suspend(served, run)
    served.resume(run)
    wait_for_state(served, run, "Completed")
    assert served.n_told("twice") == 12


@pytest.mark.full
def test_canceling_a_run_in_the_ui_ends_the_command(server, tmp_path) -> None:
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


@pytest.mark.slow
def test_failed_scheduled_study_calls_a_webhook(served, tmp_path) -> None:
    given = {"data": f"{served.home}/table.csv", "space": f"{served.home}/failing.py:space"}
    search = {"target": "target", "method": "random", "trials": 1, "workers": 1}
    with endpoint() as (url, received), client_of(served.server) as client:
        block = Webhook(url=url).save("prefect-tune")
        file = tmp_path / "automations.yaml"
        file.write_text(yaml.safe_dump({"automations": shipped(webhook=block)}))
        command = [Path(sys.executable).with_name("prefect"), "automation", "create"]
        here = environment(served.home, served.server)
        subprocess.run([*command, "--from-file", file], env=here, check=True)
        soon = datetime.now(UTC) + timedelta(seconds=15)
        schedule = IntervalSchedule(interval=timedelta(seconds=120), anchor_date=soon)
        night = DeploymentScheduleCreate(schedule=schedule, parameters={**given, **search})
        found = client.read_deployment_by_name("tune/healthcare")
        (made,) = client.create_deployment_schedules(found.id, [night])
        # Nights of deployments that were just changed are entered within 5 s, others in 60 s.
        client.update_deployment(found.id, DeploymentUpdate(paused=False))
        wait_for(lambda: received, seconds=600)
        client.delete_deployment_schedule(found.id, made.id)
    failed = received[0]
    (run,) = [
        r for r in flow_runs(served.server) if f"study:{failed['payload']['study']}" in r.tags
    ]
    nights = {a.key for a in artifacts(run.id, served.server)}  # one key each, for their history
    assert nights >= {f"tune-healthcare-{part}" for part in ("progress", "summary")}
    assert failed["event"] == "prefect-tune.study-failed"
    page = (ROOT / "deployments/docs/pages/using/prefect.md").read_text()
    assert [name for name in failed["payload"] if f"`{name}`" not in page] == []
    assert failed["payload"]["can_resume"] is False
    assert "sw0rdfish" not in json.dumps(failed)


@pytest.mark.slow
@pytest.mark.full
def test_single_ctrl_c_ends_the_study_and_all_processes(served) -> None:
    start(served, "ended")
    wait_for(lambda: served.n_told("ended") >= 1, LONG)
    family = served.family()
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(timeout=240) == 130
    _, alive = psutil.wait_procs(family, timeout=120)
    assert alive == []
    assert (served.state("ended"), served.n_running("ended")) == ("interrupted", 0)
    assert server_of(served.home) is None


def test_shipped_automations_are_valid_for_prefect() -> None:
    events = set()
    for document in shipped(webhook=UUID(int=0), mail=UUID(int=1)):
        automation = AutomationCore.model_validate(document)
        events |= automation.trigger.expect
        assert {a.type for a in automation.actions} == {"call-webhook", "send-notification"}
    assert events == {"prefect-tune.champion-changed", "prefect-tune.study-failed"}


def test_parameters_of_deployments_match_the_flows() -> None:
    for flow, deployment in declared_deployments():
        assert flow.name == deployment["entrypoint"].partition(":")[2]
        for schedule in deployment["schedules"]:
            assert not schedule["active"]
            given = deployment["parameters"] | schedule.get("parameters", {})
            bound = signature(flow.fn).bind(**given)  # a schedule lacks none
            assert set(bound.arguments) == set(given)
    assert len(declared_deployments()) == len(SERVED)
