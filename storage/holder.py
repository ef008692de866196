"""Processes, told apart from any other that ever ran, and the machines that they run on."""

import json
import os
import socket
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import psutil

from prefect_tune.storage.key import canonical_json
from prefect_tune.storage.process_start import process_start

__all__ = ["Holder", "Machine"]


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
