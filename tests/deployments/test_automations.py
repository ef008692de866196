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
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect_api import client_of
from processes import environment, server_of, wait_for
from serving import Served
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


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_scheduled_study_that_fails_calls_a_webhook(tmp_path) -> None:
    home, data = tmp_path / "home", write_table(tmp_path)
    (tmp_path / "failing.py").write_text(FAILING)
    with endpoint() as (url, received), Served.at(None, home) as served:
        with client_of(served.server) as client:
            block = Webhook(url=url).save("prefect-tune")
            file = tmp_path / "automations.yaml"
            file.write_text(yaml.safe_dump({"automations": shipped(webhook=block)}))
            prefect = Path(sys.executable).with_name("prefect")
            command = [prefect, "automation", "create", "--from-file", file]
            subprocess.run(command, env=environment(home, served.server), check=True)
            given = {"data": str(data), "target": "target", "space": f"{tmp_path}/failing.py:space"}
            search = {"method": "random", "trials": 1, "workers": 1, "study": "failing"}
            soon = IntervalSchedule(interval=timedelta(seconds=30), anchor_date=datetime.now(UTC))
            night = DeploymentScheduleCreate(schedule=soon, parameters={**given, **search})
            found = client.read_deployment_by_name("tune/healthcare")
            client.create_deployment_schedules(found.id, [night])
            # Nights of deployments that were just changed are entered within 5 s, others in 60 s.
            client.update_deployment(found.id, DeploymentUpdate(paused=False))
        wait_for(lambda: received, seconds=400)
    assert server_of(home) is None
    failed = received[0]
    assert failed["event"] == "prefect-tune.study-failed"
    page = (ROOT / "deployments/docs/pages/using/prefect.md").read_text()
    assert [name for name in failed["payload"] if f"`{name}`" not in page] == []
    assert (failed["payload"]["study"], failed["payload"]["can_resume"]) == ("failing", False)
    assert "sw0rdfish" not in json.dumps(failed)


def test_the_shipped_automations_are_of_prefects_format() -> None:
    events = set()
    for document in shipped(webhook=UUID(int=0), mail=UUID(int=1)):
        automation = AutomationCore.model_validate(document)
        events |= automation.trigger.expect
        assert {a.type for a in automation.actions} == {"call-webhook", "send-notification"}
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
ADDRESS = {PREFECT_API_URL: "http://127.0.0.1:9/api"}
"""That of no server: nothing is sent there."""


def test_events_of_a_series_name_it_as_their_resource(sent) -> None:
    changes = asdict(Changes(rows_added=2, columns_differing=("exported",)))
    with temporary_settings(ADDRESS):
        send_event("series", "s", "champion-changed", **CHAMPION)
        send_event("series", "s", "data-changed", study="s-2", former="s-1", rows=9, **changes)
    (event, resource, payload), (changed, _, data) = sent
    assert (event, changed) == ("prefect-tune.champion-changed", "prefect-tune.data-changed")
    assert resource["prefect.resource.id"] == "prefect-tune.series.s"
    assert payload["former"] == "s-1"
    assert "sw0rdfish" not in str(payload)
    assert (data["rows_added"], list(data["columns_differing"])) == (2, ["exported"])


def test_an_event_that_cannot_be_sent_fails_nothing(monkeypatch, caplog) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(flow_run_page, "emit_event", refuse)
    with temporary_settings(ADDRESS):
        send_event("series", "s", "champion-changed", **CHAMPION)
    assert "champion-changed" in caplog.text


def test_nothing_is_sent_without_a_server(sent) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        send_event("series", "s", "champion-changed", **CHAMPION)
    assert sent == []
