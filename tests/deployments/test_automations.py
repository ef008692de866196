"""Events of studies on a real server: they are recorded, and automations call an endpoint."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
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
from processes import environment, server_of, wait_for
from serving import Served, serve_process, wait_until_served
from source_tree import ROOT
from user_spaces import PRELUDE

import prefect_tune.deployments
from prefect_tune.flows import flow_run_page
from prefect_tune.flows.flow_run_page import send_event
from prefect_tune.storage.series import Changes

FAILING = f"""{PRELUDE}

class Fails(GaussianNB):
    def fit(self, X, y):
        raise RuntimeError("postgresql://u:sw0rdfish@host/db refused")


space = models(one("fails", Fails, SMOOTHING))
"""

SHIPPED = Path(prefect_tune.deployments.__file__).parent / "automations.yaml"
ON_COMPLETION = """
- name: study completed
  trigger:
    type: event
    posture: Reactive
    expect: [prefect-tune.study-completed]
    threshold: 1
    within: 0
  actions:
    - type: call-webhook
      block_document_id: ID-OF-WEBHOOK
      payload: '{"event": {{ event.event | tojson }}, "payload": {{ event.payload | tojson }},
        "related": {{ event.related | length }}}'
"""


def shipped(**blocks: UUID) -> list[dict[str, Any]]:
    """The automations of the package, with the actions of these blocks only."""
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


@contextmanager
def scheduled(served: Served, deployment: str, **parameters: Any) -> Iterator[None]:
    """A deployment that starts by itself, again and again."""
    soon = IntervalSchedule(interval=timedelta(seconds=15), anchor_date=datetime.now(UTC))
    night = DeploymentScheduleCreate(schedule=soon, parameters=parameters)
    with client_of(served.server) as client:
        found = client.read_deployment_by_name(deployment)
        (made,) = client.create_deployment_schedules(found.id, [night])
        # Nights of deployments that were changed just now are entered within 5 s, others in 60 s.
        client.update_deployment(found.id, DeploymentUpdate(paused=False))
        yield
        client.delete_deployment_schedule(found.id, made.id)


@pytest.mark.slow
def test_a_scheduled_study_and_a_failed_one_call_a_webhook(tmp_path) -> None:
    home, file = tmp_path / "home", tmp_path / "automations.yaml"
    data = write_table(tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    with endpoint() as (url, received), serve_process(None, home) as process:
        wait_until_served(process)
        served = Served(server_of(home)["url"], home, process)
        with client_of(served.server):
            block = Webhook(url=url).save("prefect-tune")
        own = yaml.safe_load(ON_COMPLETION.replace("ID-OF-WEBHOOK", str(block)))
        file.write_text(yaml.safe_dump({"automations": [*own, *shipped(webhook=block)]}))
        subprocess.run(
            [
                Path(sys.executable).with_name("prefect"),
                "automation",
                "create",
                "--from-file",
                "automations.yaml",
            ],
            cwd=tmp_path,
            env=environment(home, served.server),
            check=True,
        )
        small = {"data": str(data), "target": "target", "method": "random", "workers": 1}
        nightly = {"space": "small", "trials": 1, "study": "night"}
        with scheduled(served, "tune/healthcare", **small, **nightly):
            wait_for(lambda: received)
        failing = f"{tmp_path}/failing.py:space"
        served.start("tune/healthcare", **small, space=failing, trials=1, study="failing")
        wait_for(lambda: received[-1]["event"] == "prefect-tune.study-failed")
    night, failed = received[0], received[-1]
    assert night["event"] == "prefect-tune.study-completed"
    page = (ROOT / "deployments/docs/pages/using/prefect.md").read_text()
    fields = {**night["payload"], **failed["payload"]}
    assert [name for name in fields if f"`{name}`" not in page] == []
    assert (night["payload"]["study"], night["payload"]["n_trials"]) == ("night", 1)
    assert night["related"] >= 3  # its flow, flow run and deployment
    assert failed["event"] == "prefect-tune.study-failed"
    assert (failed["payload"]["study"], failed["payload"]["can_resume"]) == ("failing", False)
    assert "sw0rdfish" not in json.dumps(failed)


def test_the_shipped_automations_are_of_prefects_format() -> None:
    events = set()
    for document in shipped(webhook=UUID(int=0), mail=UUID(int=1)):
        automation = AutomationCore.model_validate(document)
        events |= automation.trigger.expect
        assert {action.type for action in automation.actions} == {
            "call-webhook", "send-notification"
        }  # fmt: skip
    assert events == {"prefect-tune.champion-changed", "prefect-tune.study-failed"}


@pytest.fixture
def sent(monkeypatch) -> list[tuple[str, dict[str, str], dict[str, Any]]]:
    """What Prefect was asked to send."""
    sent: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    def emit(event: str, resource: dict[str, str], payload: dict[str, Any]) -> None:
        sent.append((event, resource, payload))

    monkeypatch.setattr(flow_run_page, "emit_event", emit)
    return sent


CHAMPION = {
    "study": "s-2", "former": "s-1", "by": "test", "reason": "postgresql://u:sw0rdfish@h/d",
    "metric": "auroc", "loss": 0.1, "former_loss": 0.2, "rows": 300,
}  # fmt: skip


def test_events_of_a_series_name_it_as_their_resource(sent, server) -> None:  # noqa: ARG001
    send_event("series", "s", "champion-changed", **CHAMPION)
    changes = asdict(Changes(rows_added=2, columns_differing=("exported",)))
    send_event("series", "s", "data-changed", study="s-2", former="s-1", rows=9, **changes)
    (event, resource, payload), (changed, _, data) = sent
    assert (event, changed) == ("prefect-tune.champion-changed", "prefect-tune.data-changed")
    assert resource["prefect.resource.id"] == "prefect-tune.series.s"
    assert payload["former"] == "s-1"
    assert "sw0rdfish" not in str(payload)
    assert (data["rows_added"], list(data["columns_differing"])) == (2, ["exported"])


def test_an_event_that_cannot_be_sent_fails_nothing(monkeypatch, server, caplog) -> None:  # noqa: ARG001
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(flow_run_page, "emit_event", refuse)
    send_event("series", "s", "champion-changed", **CHAMPION)
    assert "champion-changed" in caplog.text


def test_nothing_is_sent_without_a_server(sent) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        send_event("series", "s", "champion-changed", **CHAMPION)
    assert sent == []
