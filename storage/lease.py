"""Leases: locks for work that only one process at a time may do, such as running a study.

A process renews its leases while it lives. If the holder of a lease is on this machine, the process
table shows whether the holder is alive. A holder on another machine counts as dead when its lease
has expired by the database's clock.
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
"""Time after which a lease expires unless it is renewed."""
_RENEWALS_PER_LEASE = 3
_POLL_SECONDS = (0.02, 0.5)
"""First and longest pause between checks of a lease that another process holds."""

Found = TypeVar("Found")

_EXPIRES = epoch() + bindparam("lease_seconds", type_=Double)
_HAS_EXPIRED = lease_table.c.expires < epoch()
_OF_NAME = lease_table.c.name == bindparam("of_name")
_MINE = (_OF_NAME, lease_table.c.holder == bindparam("of_holder"))
_RENEW = update(lease_table).where(*_MINE).values(expires=_EXPIRES)
_RELEASE = delete(lease_table).where(*_MINE)
_TAKE_OVER = update(lease_table).where(_OF_NAME).values(holder=bindparam("me"), expires=_EXPIRES)
_STANDING = select(lease_table.c.holder, _HAS_EXPIRED).where(_OF_NAME)
# The lock is shared, so that threads of the holder do not wait for each other. A takeover needs an
# exclusive lock.
_HOLDER = select(lease_table.c.holder).where(_OF_NAME).with_for_update(read=True)


_BOOKS: "WeakSet[LeaseBook]" = WeakSet()
"""All lease books of this process, which holds the leases of all books."""
_BOOKS_LOCK = threading.Lock()


class LeaseLost(RuntimeError):  # noqa: N818 - the name states the event
    """A lease expired while this process was suspended, and another process acquired the lease."""


class LeaseBook:
    """The leases in a database. A lease expires after `lease_seconds` without renewal."""

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
        """Acquire a lease if it is free or its holder is dead; return whether it was acquired."""
        return self._taken(name, lambda _: None) is not None

    def release(self, name: str) -> None:
        """Release a lease. If another process has already taken the lease, do nothing."""
        self._held.discard(name)
        self._database.transact(lambda connection: connection.execute(_RELEASE, _mine(name)))

    def holder(self, name: str) -> ProcessIdentity | None:
        """Return the holder of a lease; None if the lease can be acquired."""
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
        """Wait for a lease, hold it during the `with` block, and release it afterwards.

        `read` makes a query in the transaction that acquires the lease. While another process holds
        the lease, `fallback` is called repeatedly. If `fallback` returns a result other than None,
        the `with` block runs with this result and without the lease.
        """
        lease, (pause, longest) = self._taken(name, read), _POLL_SECONDS
        if lease is None:
            with waiting():
                while lease is None:
                    sleep(pause)
                    pause = min(pause * 1.5, longest)
                    if (found := fallback()) is not None:
                        lease = HeldLease(name, found, self._held.discard, is_over=True)
                    elif self.holder(name) is None:  # a query only, which blocks no writer
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
        """Return whether this lease book renews a lease in `database`."""
        return self._database.url == database.url and name in self._held and not self._is_closed

    def close(self) -> None:
        """Stop renewing leases, after any renewal in progress. Leases still held will expire."""
        with self._lock:
            self._is_closed, renewer = True, self._renewer
        if renewer is not None:
            renewer.stop()

    def _renew(self) -> None:
        if self._database.is_of_one_machine:
            self._database.close()  # or SQLite keeps using a file that was moved away
        # One transaction per lease: locking several rows in one transaction could deadlock.
        for name in self._held.copy():
            with self._database.write() as connection:
                mine = {**_mine(name), "lease_seconds": self._lease_seconds}
                connection.execute(_RENEW, mine)


@dataclass(slots=True)
class HeldLease(Generic[Found]):
    """A lease that is held, or that is no longer needed.

    Attributes:
        found: Result of the query in the acquiring transaction, or of the fallback.
        forget: Function that stops the renewal of the lease.
        is_over: Whether the lease was released by a committed transaction, or replaced by the
            fallback.
    """

    name: str
    found: Found
    forget: Callable[[str], None]
    is_over: bool = False

    def end(self, connection: Connection) -> None:
        """Release the lease within a transaction. After the commit, the caller sets `is_over`.

        Renewal stops at once, because another thread of this process may acquire the lease next.
        """
        self.forget(self.name)
        connection.execute(_RELEASE, _mine(self.name))


def _mine(name: str) -> dict[str, str]:
    return {"of_name": name, "of_holder": ProcessIdentity.this_process().to_text()}


def check_held(connection: Connection, name: str) -> None:
    """Raise LeaseLost unless this process holds a lease; for use in a writing transaction.

    No other process can acquire the lease before the transaction ends, even if the lease expires.
    """
    holder = connection.execute(_HOLDER, {"of_name": name}).scalar()
    if holder != ProcessIdentity.this_process().to_text():
        raise LeaseLost(
            f"this process was suspended for more than {LEASE_SECONDS:g} s, and another process "
            f"has taken over {name}"
        )
