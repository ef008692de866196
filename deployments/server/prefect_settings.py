"""Settings of Prefect, where the user has chosen none."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_SERVER_SETTINGS: dict[str, str] = {
    # Events of task runs are recorded in batches; one by one, a server loses them under load.
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "100",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_READ_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
    # The event feed and automations cost more than all the rest, and no study needs them.
    "PREFECT_SERVER_SERVICES_EVENT_PERSISTER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
    # No worker polls this server, and no flow of ours pauses: to look for them takes half a second
    # just when the server is first asked for something.
    "PREFECT_SERVER_SERVICES_FOREMAN_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_PAUSE_EXPIRATIONS_ENABLED": "false",
    # Housekeeping every few seconds would take trials on the same cores some percent.
    "PREFECT_SERVER_SERVICES_CLEANUP_RECONCILER_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_LOOP_SECONDS": "60",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "60",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}
"""Settings of the embedded server."""

_OF_ANOTHER_SERVER = (
    "PREFECT_API_",
    "PREFECT_SERVER_API_",
    "PREFECT_SERVER_CORS_",
    "PREFECT_SERVER_DATABASE_",
    "PREFECT_LOGGING_",
    "PREFECT_PROFILE",
    "PREFECT_UI_",
)
"""Beginnings of variables that would lead our server to another one's address or database."""

QUIET_CONSOLE: Mapping[str, str] = {
    # The command line reports a study itself; Prefect's own log lines go to the server only.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",  # each event of an outage would be printed
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
}
"""Environment of the command line; read when Prefect is first imported."""


_PREFECT_LOGGERS = ("prefect.", "EventsWorker", "APILogWorker")
"""Beginnings of the names of Prefect's loggers; the last two say how much is left to send."""


def set_defaults(environment: Mapping[str, str]) -> None:
    """Set environment variables that are not set yet."""
    for name, value in environment.items():
        os.environ.setdefault(name, value)


@contextmanager
def console_spared() -> Iterator[None]:
    """Keep Prefect's log lines off the console while the body runs; the server gets them."""
    from prefect.logging.handlers import PrefectConsoleHandler  # noqa: PLC0415 - heavy

    def is_not_of_prefect(record: logging.LogRecord) -> bool:  # another one for each thread
        return not record.name.startswith(_PREFECT_LOGGERS)

    consoles = [h for h in logging.getLogger().handlers if isinstance(h, PrefectConsoleHandler)]
    for console in consoles:
        console.addFilter(is_not_of_prefect)
    try:
        yield
    finally:
        for console in consoles:
            console.removeFilter(is_not_of_prefect)


def server_environment(folder: Path) -> dict[str, str]:
    """Return the environment of the embedded server whose database is in a folder."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith(_OF_ANOTHER_SERVER)}
    return ours | _SERVER_SETTINGS | {"PREFECT_HOME": str(folder)}
