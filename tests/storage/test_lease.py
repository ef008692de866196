"""Leases, their holders, and who waits for them."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from time import sleep

import psutil
import pytest
from contracts.store import POSTGRES_IN_FULL, entry, made
from processes import wait_for
from sqlalchemy import event, select, update

from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.lease import LEASE_SECONDS, LeaseBook
from prefect_tune.storage.processes import ProcessIdentity, process_start
from prefect_tune.storage.schema import lease_table, publication_table


@pytest.fixture
def book(either_store):
    book = LeaseBook(either_store.database)
    yield book
    book.close()


def test_a_lease_is_held_by_one_at_a_time(book) -> None:
    assert book.acquire("a")
    assert book.holder("a") == ProcessIdentity.this_process()
    assert not ProcessIdentity.this_process().is_dead()
    assert not book.acquire("a")
    assert book.holder("b") is None
    assert book.acquire("b")
    book.release("a")
    assert book.acquire("a")


def test_a_second_book_of_a_process_takes_no_lease_that_the_first_renews(book) -> None:
    """After a suspension, the lease has expired, and its holder will renew it."""
    other = LeaseBook(book._database)
    assert book.acquire("a")
    with book._database.write() as connection:
        connection.execute(update(lease_table).values(expires=0.0))
    assert not other.acquire("a")
    assert other.holder("a") is not None
    book.close()
    assert other.acquire("a")
    other.close()


def test_each_waiting_process_gets_its_turn(book) -> None:
    order = []
    book.acquire("a")

    def wait() -> None:
        with book.turn("a", lambda _: None):
            order.append("waiter")

    thread = threading.Thread(target=wait)
    thread.start()
    order.append("first")
    book.release("a")
    thread.join(timeout=10)
    assert order == ["first", "waiter"]
    assert book.holder("a") is None


def test_a_lease_that_is_not_renewed_expires(either_store) -> None:
    closed = LeaseBook(either_store.database)
    closed.close()  # it will not renew
    assert closed.acquire("a")
    other = LeaseBook(either_store.database)
    assert not other.acquire("a")
    set_clock_forward(either_store, LEASE_SECONDS + 1)
    assert other.acquire("a")
    other.close()


def test_a_process_that_slept_takes_no_lease_from_itself(either_store, book) -> None:
    assert book.acquire("a")
    set_clock_forward(either_store, LEASE_SECONDS + 1)
    assert not book.acquire("a")
    assert book.holder("a") == ProcessIdentity.this_process()
    book.release("a")
    assert book.acquire("a")


def test_a_lease_that_is_renewed_lasts(either_store) -> None:
    def expires() -> float:
        with either_store.database.read() as connection:
            return connection.execute(select(lease_table.c.expires)).scalar_one()

    book = LeaseBook(either_store.database, lease_seconds=0.3)
    assert book.acquire("a")
    for _ in range(2):
        before = expires()
        wait_for(lambda at=before: expires() > at)
    book.close()


def set_clock_forward(either_store: ArtifactStore, seconds: float) -> None:
    """Let the database's clock say so much more, by letting all leases end so much earlier."""
    with either_store.database.write() as connection:
        connection.execute(update(lease_table).values(expires=lease_table.c.expires - seconds))


@pytest.fixture
def holding(either_store) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a lease, and does not renew it soon."""
    program = textwrap.dedent(f"""
        import time
        from prefect_tune.storage.database import Database
        from prefect_tune.storage.lease import LeaseBook
        book = LeaseBook(Database({either_store.database.url!r}), lease_seconds=600)
        print(book.acquire("a"), flush=True)
        time.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


@POSTGRES_IN_FULL
@pytest.mark.slow
def test_who_lives_keeps_a_lease_whatever_the_clock_says_until_it_dies(
    either_store, book, holding
) -> None:
    for seconds in (3_600, -7_200):
        set_clock_forward(either_store, seconds)
        assert not book.acquire("a")
    me = ProcessIdentity.this_process()
    assert book.holder("a") == me._replace(pid=holding.pid, started=process_start(holding.pid))
    holding.kill()  # and nobody has asked yet how it ended
    while psutil.Process(holding.pid).status() != psutil.STATUS_ZOMBIE:
        sleep(0.01)
    assert book.acquire("a")


def test_a_machine_that_is_renamed_is_the_same() -> None:
    renamed = ProcessIdentity.this_process()._replace(host="other")
    assert renamed.is_alive()
    assert renamed._replace(started=0.0).is_dead()
    assert not renamed._replace(boot="another").is_alive()


def test_of_a_holder_elsewhere_a_lease_ends_by_the_clock(either_store) -> None:
    elsewhere = ProcessIdentity("another boot", 1, 1.0, "machine")
    assert not elsewhere.is_dead()
    assert not elsewhere.is_alive()
    book = LeaseBook(either_store.database)
    book.close()  # it will not renew
    assert book.acquire("a")
    with either_store.database.write() as connection:
        connection.execute(update(lease_table).values(holder=elsewhere.to_text()))
    assert not book.acquire("a")
    set_clock_forward(either_store, LEASE_SECONDS + 1)
    assert book.acquire("a")


def test_what_a_live_process_writes_is_not_swept_whatever_the_clock_says(either_store) -> None:
    either_store.index.journal.begin("cache/aa", "place")
    with either_store.database.write() as connection:
        started = publication_table.c.started
        connection.execute(update(publication_table).values(started=started - 100 * 86_400))
    assert either_store.index.journal.abandoned() == []
    elsewhere = ProcessIdentity("another boot", 1, 1.0, "machine").to_text()
    with either_store.database.write() as connection:
        connection.execute(update(publication_table).values(holder=elsewhere))
    assert either_store.index.journal.abandoned() == [("cache/aa", "place")]


MAKE_OR_WAIT = """
import os, sys
from pathlib import Path
from time import sleep
from prefect_tune.storage.database import Database
from prefect_tune.storage.lease import LeaseBook
book = LeaseBook(Database(sys.argv[1]))
log = Path(sys.argv[2])
with book.turn("made", lambda _: None):
    made = log.read_text()
    if not made:
        sleep(0.2)
        log.write_text(made + f"{os.getpid()}\\n")
book.close()
"""


@POSTGRES_IN_FULL
@pytest.mark.slow
def test_of_several_processes_one_makes_it(either_store, tmp_path) -> None:
    log = tmp_path / "log"
    log.touch()
    command = [sys.executable, "-c", MAKE_OR_WAIT, either_store.database.url, str(log)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [p.wait(timeout=60) for p in processes] == [0] * 3
    assert len(log.read_text().splitlines()) == 1


@pytest.fixture
def moved_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step of the clock by an hour does to what psutil says of every process."""
    create_time = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: create_time(self) + 3600)


@pytest.mark.usefixtures("moved_clock")
def test_a_live_process_is_alive_whatever_the_clock_says() -> None:
    me = ProcessIdentity.from_text(ProcessIdentity.this_process().to_text())
    assert not me.is_dead()
    assert process_start(me.pid) == me.started


def test_a_process_of_the_same_id_that_began_earlier_is_another_one() -> None:
    earlier = ProcessIdentity.this_process()._replace(started=1.0)
    assert earlier.is_dead()
    assert not earlier._replace(boot="elsewhere").is_dead()


@pytest.mark.slow
def test_processes_begin_one_after_the_other() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert process_start(child.pid) >= process_start(os.getpid())
        assert process_start(child.pid) == process_start(child.pid)
        child.communicate(b"\n")
    with pytest.raises(psutil.NoSuchProcess):
        process_start(child.pid)


@pytest.mark.slow
def test_the_name_of_a_program_cannot_confuse_it() -> None:
    """Its line in /proc has the name in parentheses, and names have parentheses and blanks."""
    rename = "open('/proc/self/comm', 'w').write(') S 1 (x'); print(flush=True); input()"
    command = [sys.executable, "-c", rename]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        start = process_start(child.pid)
        assert child.stdout is not None
        child.stdout.readline()
        assert process_start(child.pid) == start
        child.communicate(b"\n")


def statements_of(thread: threading.Thread, either_store: ArtifactStore) -> list[str]:
    """What a thread has the database do from now on."""
    found: list[str] = []

    def note(*about: object) -> None:
        if threading.current_thread() is thread:
            found.append(str(about[2]))

    event.listen(either_store.database.engine, "before_cursor_execute", note)
    return found


def test_who_waits_reads_and_takes_no_lease_for_what_was_made_meanwhile(either_store) -> None:
    going_on, came = threading.Event(), []

    def make():
        going_on.wait()
        return made()

    maker = threading.Thread(target=lambda: either_store.get_or_make(entry("a"), {}, make))
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
        thread.join(60)
    ((kept, fresh),) = came
    assert kept.is_present
    assert fresh is None
    assert sum("INTO leases" in s for s in statements) == 1  # its first attempt
    assert not any(s.startswith("DELETE") for s in statements)


def test_who_waits_for_one_that_fails_makes_it(either_store) -> None:
    going_on = threading.Event()

    def fail():
        going_on.wait()
        raise ValueError("no luck")

    def try_it() -> None:
        with pytest.raises(ValueError, match="no luck"):
            either_store.get_or_make(entry("a"), {}, fail)

    maker = threading.Thread(target=try_it)
    maker.start()
    wait_for(lambda: either_store.leases.holder(f"artifact {entry('a').key}"))
    threading.Timer(0.05, going_on.set).start()
    kept, fresh = either_store.get_or_make(entry("a"), {}, made)
    maker.join(60)
    assert kept.is_present
    assert fresh is not None
