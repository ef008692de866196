"""PostgreSQL: from the check of a study's lease to the commit, nobody can take the study over."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from processes import wait_for
from sqlalchemy import event, text

from prefect_tune.storage import ArtifactStore, Ledger
from prefect_tune.storage.database import Database
from prefect_tune.storage.lease import Holder, LeaseBook, LeaseLost

CHANGES = {
    "append": lambda ledger: ledger.append("s", "ask", {"by": "old"}, {"number": 0, "state": "w"}),
    "set_trial": lambda ledger: ledger.set_trial("s", {"number": 0, "state": "running"}),
    "update_study": lambda ledger: ledger.update_study("s", state="running"),
    "start_session": lambda ledger: ledger.start_session("s"),
    "beat": lambda ledger: ledger.beat(1, 5.0),
    "delete_study": lambda ledger: ledger.delete_study("s"),
}


@pytest.fixture
def store(address, postgres) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(replace(address, database=postgres.new_database()))
    Ledger(opened.database).create_study("s", {}, {})
    yield opened
    opened.close()


class OtherProcess:
    """Another process, which takes a study over and asks for trial 0 unless that is in there."""

    def __init__(self, url: str) -> None:
        program = textwrap.dedent(f"""
            import sys
            from prefect_tune.storage import Ledger
            from prefect_tune.storage.database import Database
            from prefect_tune.storage.lease import Holder
            from prefect_tune.storage.lease import LeaseBook
            # As on another machine, where nobody knows whether the holder lives.
            Holder.is_alive = Holder.is_dead = lambda self: False
            database = Database({url!r})
            book, ledger = LeaseBook(database), Ledger(database, lease="study s")
            print("ready", flush=True)
            sys.stdin.readline()
            if book.acquire("study s"):
                if not ledger.events("s"):
                    ledger.append("s", "ask", {{"by": "new"}}, {{"number": 0, "state": "w"}})
                print("taken", flush=True)
            sys.stdin.readline()
        """)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True
        )
        assert self.said() == "ready\n"
        self.is_told = False

    def take_over(self) -> None:
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.is_told = True

    def said(self) -> str:
        return self._process.stdout.readline()

    def end(self) -> None:
        self._process.communicate("\n", timeout=60)


@pytest.fixture
def other(store) -> Iterator[OtherProcess]:
    process = OtherProcess(store.database.url)
    yield process
    process.end()


def let_lease_expire(store: ArtifactStore) -> None:
    """Hold the lease of the study as a process does that slept through it."""
    asleep = LeaseBook(store.database, lease_seconds=-1.0)
    asleep.close()
    assert asleep.acquire("study s")


@contextmanager
def paused_after_its_check(store: ArtifactStore, pause) -> Iterator[None]:
    """Pause the body's transaction when it has looked at the lease."""

    def look(*about: object) -> None:
        if "FROM leases" in about[2]:  # the statement
            pause()

    event.listen(store.database.engine, "after_cursor_execute", look)
    try:
        yield
    finally:
        event.remove(store.database.engine, "after_cursor_execute", look)


def holder(lookout: Database) -> str:
    """Who holds the lease."""
    with lookout.read() as connection:
        return str(connection.execute(text("SELECT holder FROM leases")).scalar_one())


def waits_or_has_taken(lookout: Database) -> bool:
    """Whether the other process waits for a lock, or has taken over already."""
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with lookout.read() as connection:
        is_waiting = connection.execute(waiting).scalar()
    return bool(is_waiting) or holder(lookout) != Holder.this_process().to_text()


@pytest.mark.parametrize("change", CHANGES)
def test_who_wants_to_take_over_waits_for_what_the_holder_has_begun(store, other, change) -> None:
    let_lease_expire(store)
    old, lookout = Ledger(store.database, lease="study s"), Database(store.database.url)

    def take_over() -> None:
        if not other.is_told:
            other.take_over()
            wait_for(lambda: waits_or_has_taken(lookout))
            assert holder(lookout) == Holder.this_process().to_text(), "taken before the commit"

    with paused_after_its_check(store, take_over):
        CHANGES[change](old)
    assert other.said() == "taken\n"
    asks = [e.body["by"] for e in old.events("s")]
    assert asks == (["old"] if change == "append" else ["new"])
    for refused in CHANGES.values():
        with pytest.raises(LeaseLost, match="another one has taken over study s"):
            refused(old)
    assert [e.body["by"] for e in old.events("s")] == asks
    lookout.close()


def test_a_lease_that_has_expired_and_that_nobody_took_is_still_held(store) -> None:
    let_lease_expire(store)
    CHANGES["append"](Ledger(store.database, lease="study s"))
