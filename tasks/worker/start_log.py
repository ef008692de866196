"""The start of a worker: a log of its standard error until it is up, and quick imports.

The log, in the flow's scratch folder, may be the only place with the cause of a failed start.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LOG_VARIABLE = "PREFECT_TUNE_START_LOG"
"""Environment variable with the path of the log."""
_STANDARD_ERROR = 2
_MOST_BYTES = 2_000
_MOST_LINES = 5

_FORMER: list[int] = []
"""Descriptor of the flow's standard error while this process writes to the log; else empty."""


def begin_log() -> None:
    """Redirect standard error to the log, if there is one."""
    path = os.environ.get(LOG_VARIABLE)
    if path is None or _FORMER:
        return
    with suppress(OSError):
        log = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _FORMER.append(os.dup(_STANDARD_ERROR))
        os.dup2(log, _STANDARD_ERROR)
        os.close(log)


def dask_setup(worker: Any) -> None:  # noqa: ARG001 - Dask calls it with its worker
    """Stop logging when the worker has started; called by Dask."""
    while _FORMER:
        former = _FORMER.pop()
        os.dup2(former, _STANDARD_ERROR)
        os.close(former)


def log_path(folder: Path) -> Path:
    """Return the path of the log in a scratch folder."""
    return folder / "starts.log"


def log_size(folder: Path) -> int:
    """Return the size of the log in bytes; 0 if it does not exist."""
    try:
        return log_path(folder).stat().st_size
    except OSError:
        return 0


def log_text(folder: Path, since: int) -> str:
    """Return the last lines of the log, without the first `since` bytes."""
    try:
        with log_path(folder).open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(since, end - _MOST_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-_MOST_LINES:])


@contextmanager
def quick_imports() -> Iterator[None]:
    """Collect no garbage during the body, and never scan the objects left at its end again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
