"""Damage of a process by a call, so that the next call would not run as in a new one."""

import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import psutil

from prefect_tune.storage.waiting import OWN_THREAD
from prefect_tune.tasks.sandbox.process_tree import descendants

_MANY_FILES = 128
"""File descriptors above which a process is replaced; libraries keep a few for later calls."""
_COUNTED = ("threads", "child processes")
_LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]


def surroundings() -> dict[str, Any]:
    """Return the state of this process that user code can change, by name."""
    folder = None
    with suppress(OSError):  # the folder was deleted
        folder = os.getcwd()  # noqa: PTH109 - Path.cwd() raises as well
    return {
        "current folder": folder,
        "environment": dict(os.environ),
        "import path": [*sys.path],
        "signal handlers": [signal.getsignal(number) for number in signal.valid_signals()],
        "resource limits": [resource.getrlimit(which) for which in _LIMITS],
        "recursion limit": sys.getrecursionlimit(),
        "standard streams": [_stream(sys.stdout), _stream(sys.stderr), *map(_file, (0, 1, 2))],
        "threads": sum(not t.name.startswith(OWN_THREAD) for t in threading.enumerate()),
        "child processes": len(descendants(os.getpid())),
        "many open files": psutil.Process().num_fds() > _MANY_FILES,
    }


def damage(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return the name of the first thing that differs between two states; empty if none does."""
    for name, value in now.items():
        if value > before[name] if name in _COUNTED else value != before[name]:
            return name
    return ""


def _stream(stream: Any) -> tuple[Any, bool]:
    return stream, getattr(stream, "closed", True)


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
