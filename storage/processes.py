"""Identities of processes across machines. Imports only the standard library and `psutil`."""

import json
import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_STARTTIME = 19
"""Index of `starttime` among the fields after the name in parentheses; see proc(5)."""


class ProcessIdentity(NamedTuple):
    """Identity of a process. Unlike a process id, an identity is never reused.

    Attributes:
        boot: Id of the machine's boot, followed by the namespace of process ids in a container.
        pid: Process id.
        started: Start time of the process, as returned by `process_start`.
    """

    boot: str
    pid: int
    started: float
    host: str
    """Name of the machine, for messages."""

    @classmethod
    def this_process(cls) -> "ProcessIdentity":
        """Return the identity of this process."""
        return _identity(os.getpid())

    def is_dead(self) -> bool:
        """Return whether the process has certainly ended; False if it is on another machine."""
        return self.boot == _boot() and not is_running(self.pid, self.started)

    def is_alive(self) -> bool:
        """Return whether the process is certainly running; False if it is on another machine."""
        return self.boot == _boot() and is_running(self.pid, self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def to_text(self) -> str:
        """Return all fields of the identity as JSON text."""
        return json.dumps(self)

    @classmethod
    def from_text(cls, text: str) -> "ProcessIdentity":
        """Return the identity from the text that `to_text` returned."""
        return cls(*json.loads(text))


@cache
def _identity(pid: int) -> ProcessIdentity:
    return ProcessIdentity(_boot(), pid, process_start(pid), socket.gethostname())


@cache
def machine() -> str:
    """Return the boot id of this machine, which is the same in all containers.

    If the system has no boot id, return the name of the machine.
    """
    boot = _PROC / "sys/kernel/random/boot_id"
    return boot.read_text().strip() if boot.exists() else socket.gethostname()


@cache
def _boot() -> str:
    """Return the result of `machine`, followed by the container's namespace of process ids."""
    namespace = _PROC / "self/ns/pid"
    return f"{machine()} {namespace.readlink()}" if namespace.is_symlink() else machine()


def process_start(pid: int) -> float:
    """Return a start time that distinguishes processes with the same process id since the boot.

    On Linux, the start time is counted in clock ticks since the boot. psutil is not used on Linux,
    because its start times follow corrections of the wall clock. Raises psutil.NoSuchProcess if no
    such process exists.
    """
    if not (_PROC / "self/stat").exists():
        return psutil.Process(pid).create_time()
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return float(stat.rpartition(")")[2].split()[_STARTTIME])


def is_running(pid: int, started: float) -> bool:
    """Return whether a process is running. A zombie process counts as not running."""
    try:
        is_same = process_start(pid) == started
        return is_same and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
