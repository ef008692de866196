"""The ledger: events in order, and nothing by who has lost the lease."""

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest
from hammering import run_in_threads
from processes import wait_for
from services import Postgres
from sqlalchemy import event, text, update

from prefect_tune.storage import ledger as module
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.database import Database
from prefect_tune.storage.lease import LeaseBook, LeaseLost
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import lease_table


@pytest.fixture
def ledger(store) -> Ledger:
    ledger = Ledger(store.database)
    assert ledger.create_study("s", {"metric": "error"}, {"trials": 3})
    return ledger


def trial(number: int, state: str = "waiting") -> dict:
    return {"number": number, "state": state}


def test_a_study_is_entered_once(ledger) -> None:
    assert not ledger.create_study("s", {}, {})
    stored = ledger.study("s")
    assert (stored.problem, stored.settings) == ({"metric": "error"}, {"trials": 3})
    assert stored.state == "new"
    assert ledger.study("none") is None


def test_events_come_back_in_order_with_where_their_trials_stand(ledger) -> None:
    ledger.append("s", "ask", {"number": 0}, trial(0))
    ledger.append("s", "ask", {"number": 1}, trial(1))
    ledger.append("s", "tell", {"loss": 0.1 + 0.2}, trial(0, "complete"))
    events = [(0, "ask"), (1, "ask"), (2, "tell")]
    assert [(e.sequence, e.kind) for e in ledger.each_event("s")] == events
    assert list(ledger.each_event("s"))[2].body == {"loss": 0.1 + 0.2}  # to the last digit
    assert [t["state"] for t in ledger.trials("s")] == ["complete", "waiting"]


def test_time_is_the_sum_of_all_sessions(ledger) -> None:
    for seconds in (2.0, 3.5):
        session = ledger.start_session("s")
        ledger.beat(session, seconds / 2)
        ledger.beat(session, seconds)
    assert ledger.study("s").seconds == 5.5


def test_a_removed_study_leaves_nothing(ledger) -> None:
    ledger.append("s", "ask", {}, trial(0))
    ledger.start_session("s")
    ledger.delete_study("s")
    assert ledger.study("s") is None
    assert list(ledger.each_event("s")) == ledger.trials("s") == ledger.study_names() == []


def test_appending_from_many_threads_loses_nothing(ledger) -> None:
    def append(start: int) -> None:
        for number in range(start, start + 20):
            ledger.append("s", "ask", {"number": number}, trial(number))

    run_in_threads(*(partial(append, 20 * i) for i in range(4)))
    events = list(ledger.each_event("s"))
    assert [e.sequence for e in events] == list(range(80))
    assert sorted(e.body["number"] for e in events) == list(range(80))


def test_who_has_lost_the_lease_of_a_study_changes_nothing_of_it(store) -> None:
    Ledger(store.database).create_study("s", {}, {})
    assert store.leases.acquire("study s")
    ledger = Ledger(store.database, lease="study s")
    ledger.append("s", "ask", {}, {"number": 0, "state": "waiting"})
    with store.database.write() as connection:  # as another process takes over what has expired
        other = ProcessIdentity.this_process()._replace(pid=1).to_text()
        connection.execute(update(lease_table).values(holder=other))
    for change in CHANGES.values():
        with pytest.raises(LeaseLost, match="study s"):
            change(ledger)
    assert [t["state"] for t in ledger.trials("s")] == ["waiting"]
    assert len(list(ledger.each_event("s"))) == 1


def test_only_the_last_memo_of_a_study_is_kept(ledger) -> None:
    assert ledger.memo("s") is None
    ledger.append("s", "ask", {"number": 0}, trial(0), memo={"walkers": [1.0]})
    ledger.append("s", "ask", {"number": 1}, trial(1), memo={"walkers": [2.0]})
    ledger.append("s", "tell", {"number": 0}, trial(0, "complete"))
    assert ledger.memo("s") == {"walkers": [2.0]}
    ledger.delete_study("s")
    assert ledger.memo("s") is None


@pytest.mark.slow
def test_what_is_appended_while_the_database_is_restarted_is_there_once(
    tmp_path, monkeypatch
) -> None:
    server = Postgres(tmp_path / "postgres")
    address = StoreAddress(str(tmp_path / "store"), server.new_database())
    store = ArtifactStore(address)
    assert store.leases.acquire("study s")
    ledger = Ledger(store.database, lease="study s")
    assert ledger.create_study("s", {}, {})
    ledger.append("s", "ask", {"number": 0}, trial(0))
    n_restarts = 0
    enter = Ledger._set_trial

    def enter_after_a_restart(self, connection, study, entered) -> None:
        nonlocal n_restarts
        if n_restarts == 0:
            n_restarts += 1
            server.restart()  # in the middle of the transaction
        enter(self, connection, study, entered)

    monkeypatch.setattr(Ledger, "_set_trial", enter_after_a_restart)
    ledger.append("s", "tell", {"number": 0}, trial(0, "complete"))
    assert n_restarts == 1
    assert [(e.sequence, e.kind) for e in ledger.each_event("s")] == [(0, "ask"), (1, "tell")]
    assert [t["state"] for t in ledger.trials("s")] == ["complete"]
    store.close()
    server.stop()


def test_one_by_one_they_are_those_that_are_read_at_once(either_store, monkeypatch) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 3)
    ledger = Ledger(either_store.database)
    assert list(ledger.each_event("s")) == list(ledger.each_trial("s")) == []
    for name in ("s", "other"):
        ledger.create_study(name, {}, {})
        for number in range(7 if name == "s" else 2):
            ledger.append(name, "ask", {"number": number}, trial(number))
    seen = 0
    for entry in ledger.each_event("s"):
        assert ledger.memo("s") is None  # the connection is free meanwhile
        seen += entry.kind == "ask"
    assert seen == 7
    assert [event.sequence for event in ledger.each_event("s")] == list(range(7))
    assert list(ledger.each_trial("s")) == ledger.trials("s")


CHANGES = {
    "append": lambda ledger: ledger.append("s", "ask", {"by": "old"}, {"number": 0, "state": "w"}),
    "set_trial": lambda ledger: ledger.set_trial("s", {"number": 0, "state": "running"}),
    "update_study": lambda ledger: ledger.update_study("s", state="running"),
    "start_session": lambda ledger: ledger.start_session("s"),
    "beat": lambda ledger: ledger.beat(1, 5.0),
    "delete_study": lambda ledger: ledger.delete_study("s"),
}


@pytest.fixture
def fenced(address, postgres) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(replace(address, database=postgres.new_database()))
    Ledger(opened.database).create_study("s", {}, {})
    yield opened
    opened.close()


class OtherProcess:
    """Another process, which takes a study over and asks for trial 0 unless that is in there."""

    def __init__(self, url: str) -> None:
        program = textwrap.dedent(f"""
            import sys
            from prefect_tune.storage.ledger import Ledger
            from prefect_tune.storage.database import Database
            from prefect_tune.storage.lease import LeaseBook
            from prefect_tune.storage.processes import ProcessIdentity
            # As on another machine, where nobody knows whether the holder lives.
            ProcessIdentity.is_alive = ProcessIdentity.is_dead = lambda self: False
            database = Database({url!r})
            book, ledger = LeaseBook(database), Ledger(database, lease="study s")
            print("ready", flush=True)
            sys.stdin.readline()
            if book.acquire("study s"):
                if not list(ledger.each_event("s")):
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
def other(fenced) -> Iterator[OtherProcess]:
    process = OtherProcess(fenced.database.url)
    yield process
    process.end()


def let_lease_expire(fenced: ArtifactStore) -> None:
    """Hold the lease of the study as a process does that slept through it."""
    asleep = LeaseBook(fenced.database, lease_seconds=-1.0)
    asleep.close()
    assert asleep.acquire("study s")


@contextmanager
def paused_after_its_check(fenced: ArtifactStore, pause) -> Iterator[None]:
    """Pause the body's transaction when it has looked at the lease."""

    def look(*about: object) -> None:
        if "FROM leases" in about[2]:  # the statement
            pause()

    event.listen(fenced.database.engine, "after_cursor_execute", look)
    try:
        yield
    finally:
        event.remove(fenced.database.engine, "after_cursor_execute", look)


def holder(lookout: Database) -> str:
    """Who holds the lease."""
    with lookout.read() as connection:
        return str(connection.execute(text("SELECT holder FROM leases")).scalar_one())


def waits_or_has_taken(lookout: Database) -> bool:
    """Whether the other process waits for a lock, or has taken over already."""
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with lookout.read() as connection:
        is_waiting = connection.execute(waiting).scalar()
    return bool(is_waiting) or holder(lookout) != ProcessIdentity.this_process().to_text()


@pytest.mark.parametrize(
    "change",
    [c if c == "append" else pytest.param(c, marks=pytest.mark.full) for c in CHANGES],
)
def test_who_wants_to_take_over_waits_for_what_the_holder_has_begun(fenced, other, change) -> None:
    let_lease_expire(fenced)
    old, lookout = Ledger(fenced.database, lease="study s"), Database(fenced.database.url)

    def take_over() -> None:
        if not other.is_told:
            other.take_over()
            wait_for(lambda: waits_or_has_taken(lookout))
            assert holder(lookout) == ProcessIdentity.this_process().to_text(), (
                "taken before the commit"
            )

    with paused_after_its_check(fenced, take_over):
        CHANGES[change](old)
    assert other.said() == "taken\n"
    asks = [e.body["by"] for e in old.each_event("s")]
    assert asks == (["old"] if change == "append" else ["new"])
    for refused in CHANGES.values():
        with pytest.raises(LeaseLost, match="study s"):
            refused(old)
    assert [e.body["by"] for e in old.each_event("s")] == asks
    lookout.close()


def test_a_lease_that_has_expired_and_that_nobody_took_is_still_held(fenced) -> None:
    let_lease_expire(fenced)
    CHANGES["append"](Ledger(fenced.database, lease="study s"))
