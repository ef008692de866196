"""Addresses of task runs in the Prefect UI, as far as known without a request."""

import os

from prefect_tune.deployments.server.embedded import may_be_configured
from prefect_tune.deployments.server.process import noted_server
from prefect_tune.flows.store_location import home


def task_run_page(task_run_id: str | None) -> str | None:
    """Return a task run's page on the configured or running embedded server; None if unknown."""
    if not task_run_id:
        return None
    pages = os.environ.get("PREFECT_UI_URL") or _configured() or _embedded()
    return f"{pages.rstrip('/')}/runs/task-run/{task_run_id}" if pages else None


def _configured() -> str | None:
    if not may_be_configured():
        return None
    from prefect.settings import get_current_settings  # noqa: PLC0415 - takes seconds

    settings = get_current_settings()
    api = settings.api.url
    return settings.ui_url or (api.removesuffix("/api") if api else None)


def _embedded() -> str | None:
    server = noted_server(home() / "server")
    if server is None or server.find() is None:
        return None
    return server.url.removesuffix("/api")
