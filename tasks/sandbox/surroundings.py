"""What a call may damage in its process, so that the next call would not run as in a new one."""

import os
import resource
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any

import psutil

from prefect_tune.storage.waiting import OWN_THREAD

_MOST_DESCRIPTORS = 64
"""File descriptors that a call may leave open; libraries keep a few for later calls."""


@dataclass(frozen=True)
class Surroundings:
    """State of a process that user code can change; the first word of each field names it."""

    current_folder: str | None
    environment: Mapping[str, str]
    import_path: Sequence[str]
    signal_handlers: Sequence[Any]
    resource_limits: Sequence[tuple[int, int]]
    recursion_limit: int
    standard_streams: Sequence[tuple[int, int, int] | None]
    threads: int
    child_processes: int
    open_files: int

    @classmethod
    def now(cls) -> "Surroundings":
        """Return the present state of this process."""
        folder = None
        with suppress(OSError):  # the folder was deleted
            folder = os.getcwd()  # noqa: PTH109 - Path.cwd() raises as well
        here = psutil.Process()
        return cls(
            folder,
            dict(os.environ),
            tuple(sys.path),
            tuple(signal.getsignal(number) for number in signal.valid_signals()),
            tuple(resource.getrlimit(which) for which in _LIMITS),
            sys.getrecursionlimit(),
            (*map(_identity, (0, 1, 2)), (id(sys.stdout), id(sys.stderr), 0)),
            sum(not t.name.startswith(OWN_THREAD) for t in threading.enumerate()),
            len(here.children()),
            here.num_fds(),
        )

    def changed_since(self, before: "Surroundings") -> str:
        """Return the name of the first thing that differs; empty if nothing does."""
        for field in fields(self):
            now, former = getattr(self, field.name), getattr(before, field.name)
            if field.name == "open_files":
                is_changed = now > former + _MOST_DESCRIPTORS
            elif field.name in ("threads", "child_processes"):
                is_changed = now > former
            else:
                is_changed = now != former
            if is_changed:
                return field.name.replace("_", " ")
        return ""


_LIMITS = [value for name, value in vars(resource).items() if name.startswith("RLIMIT_")]


def _identity(descriptor: int) -> tuple[int, int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mode
