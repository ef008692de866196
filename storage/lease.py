"""Leases: who is making which artifact and who runs which study; and processes, told apart.

A holder renews its leases while it lives. Of one on this machine everybody here knows whether it
lives, and no clock is asked, as clocks are set. One elsewhere has died when its lease has expired,
by the database's clock. A process differs from any other that ever ran by its start, which is read
from a clock that nobody sets: `psutil` computes it from the wall clock, so it moves with every
correction.
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


LEASE_SECONDS = 30.0
"""How long a lease lasts when its holder does not renew it."""
_RENEWALS_PER_LEASE = 3
_POLL_SECONDS = (0.02, 0.5)
"""First and longest pause between two looks at a lease that another one holds."""

Found = TypeVar("Found")


_EXPIRES = epoch() + bindparam("lease_seconds", type_=Double)
_MINE = (lease_table.c.name == bindparam("of_name"), lease_table.c.holder == bindparam("of_holder"))
_RENEW = update(lease_table).where(*_MINE).values(expires=_EXPIRES)
_GIVE_BACK = delete(lease_table).where(*_MINE)
# Shared, so that threads of the holder need not wait for each other; whoever takes over does.
_HOLDER = (
    select(lease_table.c.holder)
    .where(lease_table.c.name == bindparam("of_name"))
    .with_for_update(read=True)
)
_HAS_EXPIRED = (lease_table.c.expires < epoch()).label("has_expired")
_STANDING = (_HAS_EXPIRED, (lease_table.c.expires > _EXPIRES).label("is_too_long"))
"""Whether a lease has expired, and whether it was made before the clock was set back."""


_BOOKS: "WeakSet[LeaseBook]" = WeakSet()
"""All of this process."""
_BOOKS_LOCK = threading.Lock()


class LeaseLost(RuntimeError):  # noqa: N818 - it says what happened
    """This process slept through its lease, and another one has taken it."""


class LeaseBook:
    """The leases kept in one database.

    Args:
        database: Where they are kept.
        lease_seconds: How long a lease lasts without renewal.
    """

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
        """Take a lease if it is free, has expired, or is held by a process that died here."""
        return self._taken(name, lambda _: None) is not None

    def _take(self, connection: Connection, name: str) -> bool:
        table, holder = lease_table.c, Holder.this_process().to_text()
        row = {"name": name, "holder": holder, "lease_seconds": self._lease_seconds}
        if insert_new(connection, lease_table, row, expires=_EXPIRES):
            return True
        query = select(table.holder, *_STANDING).where(table.name == name)
        seconds = {"lease_seconds": self._lease_seconds}
        other = connection.execute(query.with_for_update(), seconds).first()
        if other is None:
            return False
        mine = update(lease_table).where(table.name == name)
        if self._is_over(name, Holder.from_text(other.holder), has_expired=other.has_expired):
            connection.execute(mine.values(holder=holder, expires=_EXPIRES), seconds)
            return True
        if other.is_too_long:  # who lives renews it, and the lease of who does not ends
            connection.execute(mine.values(expires=_EXPIRES), seconds)
        return False

    def _is_over(self, name: str, holder: Holder, *, has_expired: bool) -> bool:
        """Return whether a lease may be taken from its holder."""
        if holder == Holder.this_process():
            with _BOOKS_LOCK:
                books = list(_BOOKS)
            return has_expired and not any(book.renews(self._database, name) for book in books)
        return holder.is_dead() or (has_expired and not holder.is_alive())

    def renews(self, database: Database, name: str) -> bool:
        """Return whether it holds a lease of a database, and renews it."""
        return self._database.url == database.url and name in self._held and not self._is_closed

    def _renew_from_now(self, name: str) -> None:
        with self._lock:
            self._held.add(name)
            if self._renewer is None and not self._is_closed:
                interval = self._lease_seconds / _RENEWALS_PER_LEASE
                self._renewer = Heartbeat("leases", self._renew, interval, "leases are not renewed")
                self._renewer.start()

    def release(self, name: str) -> None:
        """Give a lease back; giving back one that was lost meanwhile does nothing."""
        self._forget(name)
        self._database.transact(lambda connection: connection.execute(_GIVE_BACK, _mine(name)))

    def _forget(self, name: str) -> None:
        with self._lock:
            self._held.discard(name)

    def holder(self, name: str) -> Holder | None:
        """Return who holds a lease, unless it may be taken."""
        query = select(lease_table.c.holder, _HAS_EXPIRED).where(lease_table.c.name == name)
        for row in self._database.rows(query):
            holder = Holder.from_text(row.holder)
            if not self._is_over(name, holder, has_expired=row.has_expired):
                return holder
        return None

    @contextmanager
    def turn(
        self,
        name: str,
        look: Callable[[Connection], Found],
        instead: Callable[[], Found | None] = lambda: None,
    ) -> Iterator["Turn[Found]"]:
        """Wait until a lease is free, hold it for the body, and give it back.

        Args:
            name: Of the lease.
            look: What else to do in the transaction that takes it.
            instead: Looks for what makes the lease needless, each time that it is held by another;
                the turn is over then from its beginning.
        """
        turn = self._taken(name, look)
        if turn is None:
            with waiting():
                turn = self._waited_for(name, look, instead)
        try:
            yield turn
        finally:
            if not turn.is_over:
                self.release(name)

    def _waited_for(
        self, name: str, look: Callable[[Connection], Found], instead: Callable[[], Found | None]
    ) -> "Turn[Found]":
        """Wait for a turn, by looking; only what may take the lease writes."""
        pause, longest = _POLL_SECONDS
        while True:
            sleep(pause)
            pause = min(pause * 1.5, longest)
            if (found := instead()) is not None:
                return Turn(name, found, self._forget, is_over=True)
            holder = self.holder(name)
            is_held = holder is not None and not holder.is_dead()
            if not is_held and (turn := self._taken(name, look)) is not None:
                return turn

    def _taken(self, name: str, look: Callable[[Connection], Found]) -> "Turn[Found] | None":
        with self._database.write() as connection:
            if not self._take(connection, name):
                return None
            turn = Turn(name, look(connection), self._forget)
        self._renew_from_now(name)
        return turn

    def close(self) -> None:
        """Stop renewing, and wait for a renewal under way; leases still held expire."""
        with self._lock:
            self._is_closed, renewer = True, self._renewer
        if renewer is not None:
            renewer.stop()

    def _renew(self) -> None:
        with self._lock:
            names = list(self._held)
        for name in names:  # one by one: who holds one row and waits for another may block others
            with self._database.write() as connection:
                mine = {**_mine(name), "lease_seconds": self._lease_seconds}
                connection.execute(_RENEW, mine)


@dataclass(slots=True)
class Turn(Generic[Found]):
    """The time for which a lease is held.

    Attributes:
        name: Of the lease.
        found: What was looked up in the transaction that took it.
        forget: Ends its renewal.
        is_over: Whether it was given back already, in a transaction that has been committed, or
            was never needed.
    """

    name: str
    found: Found
    forget: Callable[[str], None]
    is_over: bool = False

    def end(self, connection: Connection) -> None:
        """Give the lease back within a transaction; set `is_over` once that is committed.

        It is renewed no more: once it is given back, another thread of this process may hold it.
        """
        self.forget(self.name)
        connection.execute(_GIVE_BACK, _mine(self.name))


def _mine(name: str) -> dict[str, str]:
    return {"of_name": name, "of_holder": Holder.this_process().to_text()}


def check_held(connection: Connection, name: str) -> None:
    """Raise, within a transaction that may write, unless this process still holds a lease.

    Nobody can take it over before the transaction has ended. One that has expired and that nobody
    has taken is still held.

    Raises:
        LeaseLost: If it does not.
    """
    if connection.execute(_HOLDER, {"of_name": name}).scalar() != Holder.this_process().to_text():
        raise LeaseLost(
            f"this process was held up for more than {LEASE_SECONDS:g} s, and another one has "
            f"taken over {name}"
        )
