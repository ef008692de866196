"""Events of studies on a real server: they are recorded, and automations call an endpoint."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from inputs import write_table
from prefect.blocks.webhook import Webhook
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.events.schemas.automations import AutomationCore
from prefect_api import client_of
from processes import run, run_json, server_of, wait_for
from serving import Served, serve_process, wait_until_served
from source_tree import ROOT
from user_spaces import PRELUDE

import prefect_tune.deployments
from prefect_tune.deployments.automations import _read, deploy_automations
from prefect_tune.flows import prefect_events
from prefect_tune.flows.prefect_events import (
    ChangedData,
    CompletedStudy,
    FailedStudy,
    NewChampion,
    send_event,
)
from prefect_tune.tasks.bad_input import BadInput

FAILING = f"""{PRELUDE}

class Fails(GaussianNB):
    def fit(self, X, y):
        raise RuntimeError("postgresql://u:sw0rdfish@host/db refused")


space = models(one("fails", Fails, SMOOTHING))
"""

ON_COMPLETION = {
    "automations": [
        {
            "name": "study completed",
            "trigger": {
                "type": "event",
                "posture": "Reactive",
                "expect": ["prefect-tune.study-completed"],
                "threshold": 1,
                "within": 0,
            },
            "actions": [
                {
                    "type": "call-webhook",
                    "block": "webhook/prefect-tune",
                    "payload": '{"event": {{ event.event | tojson }}, '
                    '"payload": {{ event.payload | tojson }}, '
                    '"related": {{ event.related | length }}}',
                }
            ],
        }
    ]
}


@contextmanager
def endpoint() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a small server, and what it has received."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", received
        server.shutdown()


def schedule(served: Served, deployment: str, **parameters: Any) -> UUID:
    """Let a deployment start by itself in some seconds."""
    soon = IntervalSchedule(
        interval=timedelta(days=1), anchor_date=datetime.now(UTC) + timedelta(seconds=5)
    )
    night = DeploymentScheduleCreate(schedule=soon, parameters=parameters)
    with client_of(served.server) as client:
        found = client.read_deployment_by_name(deployment)
        client.create_deployment_schedules(found.id, [night])
        # Nights of deployments that were changed just now are entered within 5 s, others in 60 s.
        client.update_deployment(found.id, DeploymentUpdate(paused=False))
    return found.id


@pytest.mark.slow
def test_a_scheduled_study_and_a_failed_one_call_a_webhook(tmp_path) -> None:
    home = tmp_path / "home"
    data, file = write_table(tmp_path), tmp_path / "own.yaml"
    (tmp_path / "failing.py").write_text(FAILING)
    file.write_text(yaml.safe_dump(ON_COMPLETION))
    with endpoint() as (url, received), serve_process(None, home) as process:
        wait_until_served(process)
        served = Served(server_of(home)["url"], home, process)
        refused = run("automations", home=home)
        assert refused.returncode == 2
        assert "webhook/prefect-tune" in refused.stderr
        with client_of(served.server):
            Webhook(url=url).save("prefect-tune")
        (own,) = run_json("automations", file, home=home)
        shipped = run_json("automations", home=home)
        assert (own["actions"], own["left_out"]) == (["call-webhook"], [])
        assert len(shipped) == 2
        assert all(one["left_out"] == ["sendgrid-email/prefect-tune"] for one in shipped)
        small = {"data": str(data), "target": "target", "method": "random", "workers": 1}
        schedule(served, "tune/healthcare", **small, space="small", trials=1, study="night")
        wait_for(lambda: received)
        failing = f"{tmp_path}/failing.py:space"
        served.start("tune/healthcare", **small, space=failing, trials=1, study="failing")
        wait_for(lambda: len(received) == 2)
    night, failed = received
    assert night["event"] == "prefect-tune.study-completed"
    assert set(night["payload"]) == {field.name for field in fields(CompletedStudy)}
    assert (night["payload"]["study"], night["payload"]["n_trials"]) == ("night", 1)
    assert night["related"] >= 3  # its flow, flow run and deployment
    assert failed["event"] == "prefect-tune.study-failed"
    assert (failed["payload"]["study"], failed["payload"]["can_resume"]) == ("failing", False)
    assert "sw0rdfish" not in json.dumps(failed)


def test_the_shipped_automations_are_of_prefects_format() -> None:
    events = set()
    for document in _read(None):
        blocks = [{**a, "block_document_id": UUID(int=0)} for a in document["actions"]]
        automation = AutomationCore.model_validate({**document, "actions": blocks})
        events |= automation.trigger.expect
        assert {action.type for action in automation.actions} == {
            "call-webhook", "send-notification"
        }  # fmt: skip
    assert events == {"prefect-tune.champion-changed", "prefect-tune.study-failed"}


@pytest.mark.parametrize(
    "actions", ["actions: [notify]", "actions: [{type: call-webhook, block: webhook}]"]
)
def test_an_action_that_cannot_be_used_is_refused(tmp_path, server, actions) -> None:  # noqa: ARG001
    (tmp_path / "no.yaml").write_text(f"automations: [{{name: n, {actions}}}]")
    with pytest.raises(BadInput, match=r"no\.yaml|'webhook'"):
        deploy_automations(str(tmp_path / "no.yaml"))


@pytest.mark.slow
def test_a_file_that_is_no_automation_is_named(tmp_path) -> None:
    (tmp_path / "no.yaml").write_text("automations: 3")
    done = run("automations", tmp_path / "no.yaml", home=tmp_path)
    assert done.returncode == 2
    assert "no.yaml" in done.stderr


@pytest.fixture
def sent(monkeypatch) -> list[tuple[str, dict[str, str], dict[str, Any]]]:
    """What Prefect was asked to send."""
    sent: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    def emit(event: str, resource: dict[str, str], payload: dict[str, Any]) -> None:
        sent.append((event, resource, payload))

    monkeypatch.setattr(prefect_events, "emit_event", emit)
    return sent


CHAMPION = NewChampion(
    series="s", study="s-2", former="s-1", by="test", reason="postgresql://u:sw0rdfish@h/d",
    metric="auroc", loss=0.1, former_loss=0.2, rows=300,
)  # fmt: skip


def test_events_of_a_series_name_it_as_their_resource(sent, server) -> None:  # noqa: ARG001
    send_event(CHAMPION)
    codes = tuple(f"c{i}" for i in range(1000))
    send_event(
        ChangedData(
            series="s", study="s-2", former="s-1", rows=9, rows_added=2, rows_removed=1,
            codes_added=codes,
        )
    )  # fmt: skip
    (event, resource, payload), (changed, _, data) = sent
    assert (event, changed) == ("prefect-tune.champion-changed", "prefect-tune.data-changed")
    assert resource["prefect.resource.id"] == "prefect-tune.series.s"
    assert payload["former"] == "s-1"
    assert "sw0rdfish" not in str(payload)
    assert data["codes_added"] == list(codes[:100])


def test_an_event_that_cannot_be_sent_fails_nothing(monkeypatch, server, caplog) -> None:  # noqa: ARG001
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(prefect_events, "emit_event", refuse)
    send_event(CHAMPION)
    assert "champion-changed" in caplog.text


def test_nothing_is_sent_without_a_server(sent) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        send_event(CHAMPION)
    assert sent == []


def test_the_page_on_prefect_has_all_fields_of_payloads() -> None:
    page = (ROOT / "deployments/docs/pages/using/prefect.md").read_text()
    for payload in (CompletedStudy, FailedStudy, NewChampion, ChangedData):
        assert [f.name for f in fields(payload) if f"`{f.name}`" not in page] == []


def test_the_file_is_in_the_package() -> None:
    assert (Path(prefect_tune.deployments.__file__).parent / "automations.yaml").is_file()
