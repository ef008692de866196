"""Leases: which process makes which artifact or runs which study.

A holder renews its leases while it lives. On this machine the process table shows whether a holder
lives; elsewhere it counts as dead when its lease has expired by the database's clock.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep
from typing import Generic, TypeVar
from weakref import WeakSet

from sqlalchemy import Double, bindparam, delete, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, epoch, insert_new
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import lease_table
from prefect_tune.storage.waiting import Heartbeat, waiting

LEASE_SECONDS = 30.0
"""Duration of a lease without renewal."""
_RENEWALS_PER_LEASE = 3
_POLL_SECONDS = (0.02, 0.5)
"""First and longest pause between two checks of a lease held by another process."""

Found = TypeVar("Found")

_EXPIRES = epoch() + bindparam("lease_seconds", type_=Double)
_HAS_EXPIRED = lease_table.c.expires < epoch()
_OF_NAME = lease_table.c.name == bindparam("of_name")
_MINE = (_OF_NAME, lease_table.c.holder == bindparam("of_holder"))
_RENEW = update(lease_table).where(*_MINE).values(expires=_EXPIRES)
_RELEASE = delete(lease_table).where(*_MINE)
_TAKE_OVER = update(lease_table).where(_OF_NAME).values(holder=bindparam("me"), expires=_EXPIRES)
_STANDING = select(lease_table.c.holder, _HAS_EXPIRED).where(_OF_NAME)
# A shared lock, so that threads of the holder do not wait for each other. A takeover locks fully.
_HOLDER = select(lease_table.c.holder).where(_OF_NAME).with_for_update(read=True)


_BOOKS: "WeakSet[LeaseBook]" = WeakSet()
"""All lease books of this process: their leases have the same holder."""
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

    def release(self, name: str) -> None:
        """Release a lease; if it was lost meanwhile, do nothing."""
        self._held.discard(name)
        self._database.transact(lambda connection: connection.execute(_RELEASE, _mine(name)))

    def holder(self, name: str) -> ProcessIdentity | None:
        """Return the holder of a lease; None if the lease may be acquired."""
        with self._database.read() as connection:
            standing = connection.execute(_STANDING, {"of_name": name}).first()
        if standing is None or self._is_over(name, *standing):
            return None
        return ProcessIdentity.from_text(standing[0])

    @contextmanager
    def turn(
        self,
        name: str,
        read: Callable[[Connection], Found],
        fallback: Callable[[], Found | None] = lambda: None,
    ) -> Iterator["HeldLease[Found]"]:
        """Wait for a lease, hold it during the body, and release it.

        `read` is a query in the transaction that acquires the lease. Whenever another process holds
        the lease, `fallback` may return a result that makes the lease unnecessary; the body then
        needs no lease.
        """
        lease, (pause, longest) = self._taken(name, read), _POLL_SECONDS
        if lease is None:
            with waiting():
                while lease is None:
                    sleep(pause)
                    pause = min(pause * 1.5, longest)
                    if (found := fallback()) is not None:
                        lease = HeldLease(name, found, self._held.discard, is_over=True)
                    elif self.holder(name) is None:  # reads, so that waiting blocks no writer
                        lease = self._taken(name, read)
        try:
            yield lease
        finally:
            if not lease.is_over:
                self.release(name)

    def _taken(self, name: str, read: Callable[[Connection], Found]) -> "HeldLease[Found] | None":
        me = ProcessIdentity.this_process().to_text()
        seconds = {"lease_seconds": self._lease_seconds}
        with self._database.write() as connection:
            row = {"name": name, "holder": me, **seconds}
            if not insert_new(connection, lease_table, row, expires=_EXPIRES):
                query = _STANDING.with_for_update()
                standing = connection.execute(query, {"of_name": name}).first()
                if standing is None or not self._is_over(name, *standing):
                    return None
                connection.execute(_TAKE_OVER, {"of_name": name, "me": me, **seconds})
            lease = HeldLease(name, read(connection), self._held.discard)
        with self._lock:
            self._held.add(name)
            if self._renewer is None and not self._is_closed:
                interval = self._lease_seconds / _RENEWALS_PER_LEASE
                self._renewer = Heartbeat("leases", self._renew, interval, "leases are not renewed")
        return lease

    def _is_over(self, name: str, holder: str, has_expired: bool) -> bool:
        process = ProcessIdentity.from_text(holder)
        if process == ProcessIdentity.this_process():
            with _BOOKS_LOCK:
                books = list(_BOOKS)
            return has_expired and not any(b.renews(self._database, name) for b in books)
        return process.is_dead() or (has_expired and not process.is_alive())

    def renews(self, database: Database, name: str) -> bool:
        """Return whether this book renews a lease in a database."""
        return self._database.url == database.url and name in self._held and not self._is_closed

    def close(self) -> None:
        """Stop renewing, after a renewal under way; leases still held expire."""
        with self._lock:
            self._is_closed, renewer = True, self._renewer
        if renewer is not None:
            renewer.stop()

    def _renew(self) -> None:
        if self._database.is_of_one_machine:
            self._database.close()  # else SQLite keeps using a file that was moved away
        # One at a time: holding a row while waiting for another could deadlock.
        for name in self._held.copy():
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
        connection.execute(_RELEASE, _mine(self.name))


def _mine(name: str) -> dict[str, str]:
    return {"of_name": name, "of_holder": ProcessIdentity.this_process().to_text()}


def check_held(connection: Connection, name: str) -> None:
    """Raise LeaseLost unless this process holds a lease, within a transaction that may write.

    The lease stays held until the transaction ends, even if it has expired unnoticed.
    """
    holder = connection.execute(_HOLDER, {"of_name": name}).scalar()
    if holder != ProcessIdentity.this_process().to_text():
        raise LeaseLost(
            f"this process was suspended for more than {LEASE_SECONDS:g} s, and another process "
            f"has taken over {name}"
        )
