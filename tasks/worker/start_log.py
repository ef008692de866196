"""The log of workers' starts: what they print on standard error before they are up.

A worker that cannot start may be able to say why only there. The process that workers are forked
from writes to the log, in the flow's scratch folder, and so does each worker until it is up; then
it has the flow's standard error, as it would have without a log.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["LOG_VARIABLE", "begin_log", "dask_setup", "log_path", "log_size", "log_text"]

LOG_VARIABLE = "PREFECT_TUNE_START_LOG"
"""Environment variable with the path of the log."""
_STANDARD_ERROR = 2
_MOST_BYTES = 2_000
_MOST_LINES = 5

_FORMER: list[int] = []
"""The flow's standard error, as long as this process, or the one it was forked from, has a log."""


def begin_log() -> None:
    """Write standard error to the log from now on; nothing happens where there is no log."""
    path = os.environ.get(LOG_VARIABLE)
    if path is None or _FORMER:
        return
    with suppress(OSError):
        log = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _FORMER.append(os.dup(_STANDARD_ERROR))
        os.dup2(log, _STANDARD_ERROR)
        os.close(log)


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask calls it with its worker
    """End the log of a worker whose start has come this far; called by Dask."""
    while _FORMER:
        former = _FORMER.pop()
        os.dup2(former, _STANDARD_ERROR)
        os.close(former)


def log_path(folder: Path) -> Path:
    """Return the log of the flow with a scratch folder."""
    return folder / "starts.log"


def log_size(folder: Path) -> int:
    """Return the size of a flow's log in bytes; 0 if it has none."""
    try:
        return log_path(folder).stat().st_size
    except OSError:
        return 0


def log_text(folder: Path, since: int) -> str:
    """Return the last lines of a flow's log, of those written since it had a size."""
    try:
        with log_path(folder).open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(since, end - _MOST_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_MOST_LINES:])
