"""Processes, told apart from any other that ever ran, and the machines that they run on.

The start of a process is read from a clock that nobody sets: `psutil` computes it from the wall
clock, so it moves with every correction.
"""

import json
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import psutil

from prefect_tune.storage.key import canonical_json

_PROC = Path("/proc")
_STARTTIME = 19
"""Place of `starttime` behind the name in parentheses; see proc(5)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine since its boot, whatever it is called in its containers.

    Attributes:
        boot: Id of the boot; the name where the system has none.
        name: Its name, for people.
    """

    boot: str
    name: str = field(compare=False)

    @classmethod
    def this_one(cls) -> "Machine":
        """Return the machine that this process runs on."""
        return cls(_boot_id() or socket.gethostname(), socket.gethostname())


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, told apart from any other that ever ran.

    Attributes:
        host: The machine since its boot.
        pid: Process id.
        started: See `process_start`.
    """

    host: str
    pid: int
    started: float

    @classmethod
    def this_process(cls) -> "Holder":
        """Return the holder that this process is."""
        return _holder(os.getpid())

    def is_dead(self) -> bool:
        """Return whether it certainly no longer runs; False for processes of other machines."""
        return self._is_here() and not self._runs()

    def is_alive(self) -> bool:
        """Return whether it certainly runs; False for processes of other machines."""
        return self._is_here() and self._runs()

    def _is_here(self) -> bool:
        """Return whether it is of this machine, whatever that is called now."""
        return _since_boot(self.host) == _since_boot(_host())

    def _runs(self) -> bool:
        try:
            is_same = process_start(self.pid) == self.started
            return is_same and psutil.Process(self.pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host.partition('/')[0]}"

    def to_text(self) -> str:
        """Return all fields as canonical JSON."""
        return canonical_json(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "Holder":
        """Invert `to_text`."""
        return cls(**json.loads(text))


@cache
def _holder(pid: int) -> Holder:
    return Holder(_host(), pid, process_start(pid))


@cache
def _host() -> str:
    """Return a name of the machine since its boot, and of its namespace of process ids."""
    namespace = Path("/proc/self/ns/pid")
    parts = [
        socket.gethostname(),
        str(namespace.readlink()) if namespace.is_symlink() else "",
        _boot_id(),
    ]
    return "/".join(parts)


def _since_boot(host: str) -> str:
    """Return what of a name of a machine stays when it gets another host name."""
    _, _, rest = host.partition("/")
    return rest if rest.strip("/") else host


def _boot_id() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else ""


def process_start(pid: int) -> float:
    """Return a number that no other process of this id has had since the machine was started.

    On Linux, clock ticks since the boot; elsewhere, what the system noted when the process began.

    Raises:
        psutil.NoSuchProcess: If there is none.
    """
    ticks = _ticks(pid)
    return psutil.Process(pid).create_time() if ticks is None else float(ticks)


def process_age(pid: int) -> float:
    """Return the seconds since a process began.

    Raises:
        psutil.NoSuchProcess: If there is none.
    """
    ticks = _ticks(pid)
    if ticks is None:
        return time.time() - psutil.Process(pid).create_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int | None:
    """Return the ticks from the boot to a process's start; None where there is no `/proc`."""
    if not (_PROC / "self" / "stat").exists():
        return None
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return int(stat.rpartition(")")[2].split()[_STARTTIME])
