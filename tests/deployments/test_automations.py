"""Events of series, as sent to Prefect."""

from dataclasses import asdict
from typing import Any

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from prefect_tune.flows import flow_run_page
from prefect_tune.flows.flow_run_page import send_event
from prefect_tune.storage.series import Changes


@pytest.fixture
def sent(monkeypatch) -> list[tuple[str, dict[str, str], dict[str, Any]]]:
    """Record the events sent to Prefect."""
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


def test_events_of_a_series_have_the_series_as_resource(sent) -> None:
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


def test_unsendable_event_causes_no_failure(monkeypatch, caplog) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(flow_run_page, "emit_event", refuse)
    with temporary_settings(ADDRESS):
        send_event("series", "s", "champion-changed", **CHAMPION)
    assert "champion-changed" in caplog.text


def test_no_event_is_sent_without_a_server(sent) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        send_event("series", "s", "champion-changed", **CHAMPION)
    assert sent == []
