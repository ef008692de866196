"""Leases (which process makes which artifact or runs which study), and identities of processes.

A holder renews its leases while it lives. On this machine the process table shows whether a holder
lives; elsewhere it counts as dead when its lease has expired by the database's clock. A process is
identified by its start on a monotonic clock, because `psutil` derives start times from the wall
clock, which is corrected now and then.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from time import sleep
from typing import Generic, TypeVar
from weakref import WeakSet

import psutil
from sqlalchemy import Double, bindparam, delete, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, epoch, insert_new
from prefect_tune.storage.key import canonical_json
from prefect_tune.storage.schema import lease_table
from prefect_tune.storage.waiting import Heartbeat, waiting

_PROC = Path("/proc")
_STARTTIME = 19
"""Index of `starttime` among the fields after the name in parentheses; see proc(5)."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine since its boot; its containers share `boot` (if the system has one), not `name`."""

    boot: str
    name: str = field(compare=False)

    @classmethod
    def this_one(cls) -> "Machine":
        """Return the machine of this process."""
        return cls(_boot_id() or socket.gethostname(), socket.gethostname())


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identity of a process, unique over time: its machine, process id and `process_start`."""

    host: str
    pid: int
    started: float

    @classmethod
    def this_process(cls) -> "ProcessIdentity":
        """Return the identity of this process."""
        return _holder(os.getpid())

    def is_dead(self) -> bool:
        """Return whether the process certainly ended; False for other machines."""
        return self._is_here() and not self._runs()

    def is_alive(self) -> bool:
        """Return whether the process certainly runs; False for other machines."""
        return self._is_here() and self._runs()

    def _is_here(self) -> bool:
        """Return whether this is its machine, whatever the host name is now."""
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
    def from_text(cls, text: str) -> "ProcessIdentity":
        """Invert `to_text`."""
        return cls(**json.loads(text))


@cache
def _holder(pid: int) -> ProcessIdentity:
    return ProcessIdentity(_host(), pid, process_start(pid))


@cache
def _host() -> str:
    """Return a name of the machine since its boot, with its namespace of process ids."""
    namespace = Path("/proc/self/ns/pid")
    parts = [
        socket.gethostname(),
        str(namespace.readlink()) if namespace.is_symlink() else "",
        _boot_id(),
    ]
    return "/".join(parts)


def _since_boot(host: str) -> str:
    _, _, rest = host.partition("/")
    return rest if rest.strip("/") else host


def _boot_id() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else ""


def process_start(pid: int) -> float:
    """Return a number that identifies a process among all with the same id since the boot.

    It is clock ticks since the boot on Linux, else the start time. Raises psutil.NoSuchProcess.
    """
    ticks = _ticks(pid)
    return psutil.Process(pid).create_time() if ticks is None else float(ticks)


def process_age(pid: int) -> float:
    """Return the seconds since a process began; raises psutil.NoSuchProcess."""
    ticks = _ticks(pid)
    if ticks is None:
        return time.time() - psutil.Process(pid).create_time()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int | None:
    if not (_PROC / "self" / "stat").exists():
        return None
    try:
        stat = (_PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(pid) from None
    return int(stat.rpartition(")")[2].split()[_STARTTIME])


LEASE_SECONDS = 30.0
"""Duration of a lease without renewal."""
_RENEWALS_PER_LEASE = 3
_POLL_SECONDS = (0.02, 0.5)
"""First and longest pause between two checks of a lease held by another process."""

Found = TypeVar("Found")


_EXPIRES = epoch() + bindparam("lease_seconds", type_=Double)
_MINE = (lease_table.c.name == bindparam("of_name"), lease_table.c.holder == bindparam("of_holder"))
_RENEW = update(lease_table).where(*_MINE).values(expires=_EXPIRES)
_GIVE_BACK = delete(lease_table).where(*_MINE)
# A shared lock, so that threads of the holder do not wait for each other. A takeover locks fully.
_HOLDER = (
    select(lease_table.c.holder)
    .where(lease_table.c.name == bindparam("of_name"))
    .with_for_update(read=True)
)
_HAS_EXPIRED = (lease_table.c.expires < epoch()).label("has_expired")
_STANDING = (_HAS_EXPIRED, (lease_table.c.expires > _EXPIRES).label("is_too_long"))
"""Whether a lease has expired, and whether it dates from before the clock was set back."""


_BOOKS: "WeakSet[LeaseBook]" = WeakSet()
"""All lease books of this process."""
_BOOKS_LOCK = threading.Lock()


class LeaseLost(RuntimeError):  # noqa: N818 - the name states the event
    """The lease expired while this process was suspended, and another process acquired it."""


class LeaseBook:
    """The leases in one database; they last `lease_seconds` without renewal."""

    def __init__(self, database: Database, lease_seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._lease_seconds = lease_seconds
        self._held: set[str] = set()
        self._lock = threading.Lock()
        self._renewer: Heartbeat | None = None
        self._is_closed = False
        with _BOOKS_LOCK:
            _BOOKS.add(self)

    def acquire(self, name: str) -> bool:
        """Acquire a lease that is free, expired, or held by a dead process of this machine."""
        return self._taken(name, lambda _: None) is not None

    def _take(self, connection: Connection, name: str) -> bool:
        table, holder = lease_table.c, ProcessIdentity.this_process().to_text()
        row = {"name": name, "holder": holder, "lease_seconds": self._lease_seconds}
        if insert_new(connection, lease_table, row, expires=_EXPIRES):
            return True
        query = select(table.holder, *_STANDING).where(table.name == name)
        seconds = {"lease_seconds": self._lease_seconds}
        other = connection.execute(query.with_for_update(), seconds).first()
        if other is None:
            return False
        mine = update(lease_table).where(table.name == name)
        if self._is_over(
            name, ProcessIdentity.from_text(other.holder), has_expired=other.has_expired
        ):
            connection.execute(mine.values(holder=holder, expires=_EXPIRES), seconds)
            return True
        if other.is_too_long:  # a living holder renews it; a dead one lets it expire
            connection.execute(mine.values(expires=_EXPIRES), seconds)
        return False

    def _is_over(self, name: str, holder: ProcessIdentity, *, has_expired: bool) -> bool:
        if holder == ProcessIdentity.this_process():
            with _BOOKS_LOCK:
                books = list(_BOOKS)
            return has_expired and not any(book.renews(self._database, name) for book in books)
        return holder.is_dead() or (has_expired and not holder.is_alive())

    def renews(self, database: Database, name: str) -> bool:
        """Return whether this book renews the lease `name` in a database."""
        return self._database.url == database.url and name in self._held and not self._is_closed

    def _renew_from_now(self, name: str) -> None:
        with self._lock:
            self._held.add(name)
            if self._renewer is None and not self._is_closed:
                interval = self._lease_seconds / _RENEWALS_PER_LEASE
                self._renewer = Heartbeat("leases", self._renew, interval, "leases are not renewed")
                self._renewer.start()

    def release(self, name: str) -> None:
        """Release a lease; if it was lost meanwhile, do nothing."""
        self._forget(name)
        self._database.transact(lambda connection: connection.execute(_GIVE_BACK, _mine(name)))

    def _forget(self, name: str) -> None:
        with self._lock:
            self._held.discard(name)

    def holder(self, name: str) -> ProcessIdentity | None:
        """Return the holder of a lease; None if the lease may be acquired."""
        query = select(lease_table.c.holder, _HAS_EXPIRED).where(lease_table.c.name == name)
        for row in self._database.rows(query):
            holder = ProcessIdentity.from_text(row.holder)
            if not self._is_over(name, holder, has_expired=row.has_expired):
                return holder
        return None

    @contextmanager
    def turn(
        self,
        name: str,
        look: Callable[[Connection], Found],
        instead: Callable[[], Found | None] = lambda: None,
    ) -> Iterator["HeldLease[Found]"]:
        """Wait for a lease, hold it during the body, and release it.

        `look` is a query in the transaction that acquires the lease. Whenever another process holds
        the lease, `instead` may return a result that makes the lease unnecessary; the body then
        needs no lease.
        """
        lease = self._taken(name, look)
        if lease is None:
            with waiting():
                lease = self._waited_for(name, look, instead)
        try:
            yield lease
        finally:
            if not lease.is_over:
                self.release(name)

    def _waited_for(
        self, name: str, look: Callable[[Connection], Found], instead: Callable[[], Found | None]
    ) -> "HeldLease[Found]":
        """Wait by reading; write only when the lease may be acquired."""
        pause, longest = _POLL_SECONDS
        while True:
            sleep(pause)
            pause = min(pause * 1.5, longest)
            if (found := instead()) is not None:
                return HeldLease(name, found, self._forget, is_over=True)
            holder = self.holder(name)
            is_held = holder is not None and not holder.is_dead()
            if not is_held and (lease := self._taken(name, look)) is not None:
                return lease

    def _taken(self, name: str, look: Callable[[Connection], Found]) -> "HeldLease[Found] | None":
        with self._database.write() as connection:
            if not self._take(connection, name):
                return None
            lease = HeldLease(name, look(connection), self._forget)
        self._renew_from_now(name)
        return lease

    def close(self) -> None:
        """Stop renewing, after a renewal under way; leases still held expire."""
        with self._lock:
            self._is_closed, renewer = True, self._renewer
        if renewer is not None:
            renewer.stop()

    def _renew(self) -> None:
        with self._lock:
            names = list(self._held)
        for name in names:  # one at a time: holding a row while waiting for another could deadlock
            with self._database.write() as connection:
                mine = {**_mine(name), "lease_seconds": self._lease_seconds}
                connection.execute(_RENEW, mine)


@dataclass(slots=True)
class HeldLease(Generic[Found]):
    """A lease while it is held.

    `found` is the result of the query in the acquiring transaction, and `forget` stops the renewal.
    `is_over` is true if the lease was released by a committed transaction, or never needed.
    """

    name: str
    found: Found
    forget: Callable[[str], None]
    is_over: bool = False

    def end(self, connection: Connection) -> None:
        """Release the lease within a transaction; set `is_over` once it is committed.

        Renewal stops now, because another thread of this process may acquire the lease next.
        """
        self.forget(self.name)
        connection.execute(_GIVE_BACK, _mine(self.name))


def _mine(name: str) -> dict[str, str]:
    return {"of_name": name, "of_holder": ProcessIdentity.this_process().to_text()}


def check_held(connection: Connection, name: str) -> None:
    """Raise LeaseLost unless this process holds a lease, within a transaction that may write.

    The lease stays held until the transaction ends, even if it has expired unnoticed.
    """
    if (
        connection.execute(_HOLDER, {"of_name": name}).scalar()
        != ProcessIdentity.this_process().to_text()
    ):
        raise LeaseLost(
            f"this process was suspended for more than {LEASE_SECONDS:g} s, and another process "
            f"has taken over {name}"
        )
