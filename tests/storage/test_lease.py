"""Leases, their holders, and processes that wait; `test_kills.py` kills holders."""

import os
import subprocess
import sys
import threading

import psutil
import pytest
from contracts.store import entry, made
from processes import wait_for
from sqlalchemy import event, update

from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.lease import LEASE_SECONDS, LeaseBook
from prefect_tune.storage.processes import ProcessIdentity, process_start
from prefect_tune.storage.schema import lease_table, publication_table

ELSEWHERE = ProcessIdentity("another boot", 1, 1.0, "machine")


@pytest.fixture
def book(either_store):
    book = LeaseBook(either_store.database)
    yield book
    book.close()


def set_clock_forward(store: ArtifactStore, seconds: float = LEASE_SECONDS + 1) -> None:
    """Advance the clock of the database, by shortening all leases by the same time."""
    with store.database.write() as connection:
        connection.execute(update(lease_table).values(expires=lease_table.c.expires - seconds))


def test_lease_has_one_holder_at_a_time(book) -> None:
    assert book.acquire("a")
    assert book.holder("a") == ProcessIdentity.this_process()
    assert not book.acquire("a")
    assert book.holder("b") is None
    assert book.acquire("b")
    book.release("a")
    assert book.acquire("a")


def test_lease_of_a_process_that_slept_is_not_taken_if_renewed(either_store, book) -> None:
    other = LeaseBook(either_store.database)
    assert book.acquire("a")
    set_clock_forward(either_store)
    for one in (book, other):
        assert not one.acquire("a")
        assert one.holder("a") == ProcessIdentity.this_process()
    book.close()  # it no longer renews
    assert other.acquire("a")
    other.close()


@pytest.mark.parametrize("holder", [ProcessIdentity.this_process(), ELSEWHERE])
def test_lease_that_is_not_renewed_expires(either_store, holder) -> None:
    closed, other = LeaseBook(either_store.database), LeaseBook(either_store.database)
    closed.close()  # it will not renew
    assert closed.acquire("a")
    with either_store.database.write() as connection:
        connection.execute(update(lease_table).values(holder=holder.to_text()))
    assert not other.acquire("a")
    set_clock_forward(either_store)
    assert other.acquire("a")
    other.close()


def test_files_of_a_live_writer_are_not_swept_whatever_the_clock_says(either_store) -> None:
    either_store.index.journal.begin("cache/aa", "place")
    with either_store.database.write() as connection:
        started = publication_table.c.started
        connection.execute(update(publication_table).values(started=started - 100 * 86_400))
    assert either_store.index.journal.abandoned() == []
    with either_store.database.write() as connection:
        connection.execute(update(publication_table).values(holder=ELSEWHERE.to_text()))
    assert either_store.index.journal.abandoned() == [("cache/aa", "place")]


def test_process_is_identified_by_boot_pid_and_start_whatever_the_clock_says(
    monkeypatch,
) -> None:
    create_time = psutil.Process.create_time  # what a step of the clock by an hour does to it
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) + 3600)
    me = ProcessIdentity.from_text(ProcessIdentity.this_process().to_text())
    assert process_start(me.pid) == me.started
    renamed = me._replace(host="other")
    earlier = me._replace(started=1.0)
    for one, lives, has_ended in (
        (me, True, False),
        (renamed, True, False),
        (earlier, False, True),
        (earlier._replace(boot="elsewhere"), False, False),
        (ELSEWHERE, False, False),
    ):
        assert (one.is_alive(), one.is_dead()) == (lives, has_ended)


@pytest.mark.slow
def test_process_start_does_not_depend_on_the_program_name() -> None:
    """In /proc, the program name is in parentheses, and may contain parentheses and spaces."""
    rename = "open('/proc/self/comm', 'w').write(') S 1 (x'); print(flush=True); input()"
    command = [sys.executable, "-c", rename]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        start = process_start(child.pid)
        assert start >= process_start(os.getpid())
        child.stdout.readline()
        assert process_start(child.pid) == start
        child.communicate(b"\n")
    with pytest.raises(psutil.NoSuchProcess):
        process_start(child.pid)


def statements_of(thread: threading.Thread, store: ArtifactStore) -> list[str]:
    """Record the statements that a thread sends to the database from now on."""
    found: list[str] = []

    def note(*about: object) -> None:
        if threading.current_thread() is thread:
            found.append(str(about[2]))

    event.listen(store.database.engine, "before_cursor_execute", note)
    return found


@pytest.mark.parametrize("is_made", [True, False])
def test_waiting_process_reads_the_result_without_taking_the_lease(either_store, is_made) -> None:
    going_on, came, failed = threading.Event(), [], []

    def make():
        going_on.wait()
        if not is_made:
            raise ValueError("no luck")
        return made()

    def make_or_fail() -> None:
        try:
            either_store.get_or_make(entry("a"), {}, make)
        except ValueError as error:
            failed.append(str(error))

    maker = threading.Thread(target=make_or_fail)
    waiter = threading.Thread(
        target=lambda: came.append(either_store.get_or_make(entry("a"), {}, made))
    )
    maker.start()
    wait_for(lambda: either_store.leases.holder(f"artifact {entry('a').key}"))
    statements = statements_of(waiter, either_store)
    waiter.start()
    wait_for(lambda: sum("FROM leases" in s for s in statements) > 5)  # it waits
    going_on.set()
    for thread in (maker, waiter):
        thread.join(120)
    ((kept, fresh),) = came
    assert kept.is_present
    assert failed == ([] if is_made else ["no luck"])
    assert (fresh is None) == is_made
    if is_made:
        assert sum("INTO leases" in s for s in statements) == 1  # its first attempt
        assert not any(s.startswith("DELETE") for s in statements)
