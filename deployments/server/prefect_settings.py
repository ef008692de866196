"""Prefect settings that apply unless the user has set them."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

_SERVER_SETTINGS: dict[str, str] = {
    # Task run events are recorded in batches, because a busy server would lose single events.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_BATCH_SIZE": "200",
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TRIGGERS_READ_BATCH_SIZE": "50",
    # No worker polls this server, and an expired pause fails when the run is resumed. The checks
    # would take half a second at the first request.
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    # Housekeeping every few seconds would take a few percent of the CPU time of trials.
    "PREFECT_SERVER_SERVICES_CLEANUP_RECONCILER_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "60",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}
"""Settings of the private server."""

_WITHOUT_EVENTS = {
    # Event feed and automations cost more than the rest of the server, and studies do not need
    # them.
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}

QUIET_CONSOLE: Mapping[str, str] = {
    # The command line reports studies itself; Prefect's log lines go to the server only.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # or each event of an outage is printed
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
}
"""Environment variables for the command line, which Prefect reads when first imported."""


_PREFECT_LOGGERS = ("prefect.", "EventsWorker", "APILogWorker")
"""Prefixes of Prefect's loggers. The last two loggers report unsent messages."""


def set_defaults(environment: Mapping[str, str]) -> None:
    """Set environment variables, unless already set."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)


@contextmanager
def mute_prefect_console() -> Iterator[None]:
    """Send Prefect's log lines to the server, but not to the console, during the `with` block."""
    from prefect.logging.handlers import PrefectConsoleHandler  # noqa: PLC0415 - heavy

    def is_not_of_prefect(record: logging.LogRecord) -> bool:  # a new function per thread
        return not record.name.startswith(_PREFECT_LOGGERS)

    with ExitStack() as stack:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, PrefectConsoleHandler):
                handler.addFilter(is_not_of_prefect)
                stack.callback(handler.removeFilter, is_not_of_prefect)
        yield


def server_environment(folder: Path, *, with_events: bool = False) -> dict[str, str]:
    """Return the environment of the private server, whose working folder must be `folder`.

    `with_events` turns on the services that record events and fire automations.
    """
    # The user's own Prefect variables are for other servers.
    ours = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    events = {} if with_events else _WITHOUT_EVENTS
    # Relative, because characters of a folder's name could be special in a URL.
    database = {"PREFECT_API_DATABASE_CONNECTION_URL": "sqlite+aiosqlite:///prefect.db"}
    return ours | _SERVER_SETTINGS | events | {"PREFECT_HOME": str(folder)} | database
