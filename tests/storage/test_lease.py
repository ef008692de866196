import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from time import sleep

import psutil
import pytest
from processes import wait_for
from sqlalchemy import select, update

from prefect_tune.storage import ArtifactStore
from prefect_tune.storage.database import Database
from prefect_tune.storage.lease import Holder, LeaseBook, process_start
from prefect_tune.storage.schema import lease_table, publication_table


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, address, postgres):
    database = postgres.new_database() if request.param == "postgresql" else ""
    opened = ArtifactStore(replace(address, database=database))
    yield opened
    opened.close()


@pytest.fixture
def book(store):
    book = LeaseBook(store.database)
    yield book
    book.close()


def test_a_lease_is_held_by_one_at_a_time(book) -> None:
    assert book.acquire("a")
    assert not book.acquire("a")
    assert book.acquire("b")
    book.release("a")
    assert book.acquire("a")


def test_the_holder_is_known(book) -> None:
    book.acquire("a")
    assert book.holder("a") == Holder.this_process()
    assert not Holder.this_process().is_dead()
    assert book.holder("b") is None


def test_whoever_waits_gets_its_turn(book) -> None:
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


def test_a_lease_that_is_not_renewed_expires(store) -> None:
    short = LeaseBook(store.database, lease_seconds=0.3)
    short.close()  # it will not renew
    assert short.acquire("a")
    other = LeaseBook(store.database)
    while not other.acquire("a"):
        sleep(0.05)
    other.close()


def test_a_lease_that_is_renewed_lasts(store) -> None:
    def expires() -> float:
        with store.database.read() as connection:
            return connection.execute(select(lease_table.c.expires)).scalar_one()

    book = LeaseBook(store.database, lease_seconds=0.3)
    assert book.acquire("a")
    for _ in range(2):
        before = expires()
        wait_for(lambda at=before: expires() > at)
    book.close()


def test_a_holder_that_was_killed_here_is_not_waited_for(store) -> None:
    program = textwrap.dedent(f"""
        import time
        from prefect_tune.storage.database import Database
        from prefect_tune.storage.lease import LeaseBook
        book = LeaseBook(Database({store.database.url!r}), lease_seconds=600)
        print(book.acquire("a"), flush=True)
        time.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    book = LeaseBook(store.database)
    assert not book.acquire("a")
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert book.acquire("a")
    book.close()


def set_clock_forward(store: ArtifactStore, seconds: float) -> None:
    """Let the database's clock say so much more, by letting all leases end so much earlier."""
    with store.database.write() as connection:
        connection.execute(update(lease_table).values(expires=lease_table.c.expires - seconds))


@pytest.mark.parametrize("seconds", [3_600, -3_600])
@pytest.mark.parametrize("how", ["elsewhere", "here"])
def test_who_lives_keeps_a_lease_whatever_the_clock_says(store, holding, how, seconds) -> None:
    book, mine = LeaseBook(store.database), LeaseBook(store.database)
    if how == "here":
        assert mine.acquire("a")
        holder = Holder.this_process()
    else:
        holder = Holder(Holder.this_process().host, holding.pid, process_start(holding.pid))
    set_clock_forward(store, seconds)
    assert not book.acquire("a")
    assert book.holder("a") == holder
    mine.close()
    book.close()


@pytest.fixture
def holding(store, how):
    """A process that holds a lease, and does not renew it soon."""
    program = textwrap.dedent(f"""
        import time
        from prefect_tune.storage.database import Database
        from prefect_tune.storage.lease import LeaseBook
        book = LeaseBook(Database({store.database.url!r}), lease_seconds=600)
        print(book.acquire("a"), flush=True)
        time.sleep(600)
    """)
    if how == "here":
        yield None
        return
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def test_a_machine_that_is_renamed_is_the_same() -> None:
    me = Holder.this_process()
    renamed = replace(me, host=f"other/{me.host.partition('/')[2]}")
    assert renamed.is_alive()
    assert replace(renamed, started=0.0).is_dead()
    assert not replace(renamed, host="other/ns/boot").is_alive()


@pytest.mark.parametrize("how", ["elsewhere"])
def test_one_that_ended_and_was_not_waited_for_holds_nothing(store, holding) -> None:
    book = LeaseBook(store.database)
    holding.kill()  # and nobody has asked yet how it ended
    while psutil.Process(holding.pid).status() != psutil.STATUS_ZOMBIE:
        sleep(0.01)
    assert book.acquire("a")
    book.close()


def test_of_a_holder_elsewhere_a_lease_ends_by_the_clock_even_if_that_was_set_back(store) -> None:
    elsewhere = Holder("another/machine", 1, 1.0)
    assert not elsewhere.is_dead()
    assert not elsewhere.is_alive()
    book = LeaseBook(store.database, lease_seconds=0.5)
    book.close()  # it will not renew
    assert book.acquire("a")
    with store.database.write() as connection:
        connection.execute(update(lease_table).values(holder=elsewhere.to_text()))
    set_clock_forward(store, -3_600)
    assert not book.acquire("a")
    while not book.acquire("a"):
        sleep(0.05)


def test_what_a_live_process_writes_is_not_swept_whatever_the_clock_says(store) -> None:
    store.index.journal.begin("cache/aa", "place")
    with store.database.write() as connection:
        started = publication_table.c.started
        connection.execute(update(publication_table).values(started=started - 100 * 86_400))
    assert store.index.journal.abandoned() == []
    elsewhere = Holder("another/machine", 1, 1.0).to_text()
    with store.database.write() as connection:
        connection.execute(update(publication_table).values(holder=elsewhere))
    assert store.index.journal.abandoned() == [("cache/aa", "place")]


def make_or_wait(url: str, log: str) -> None:
    book = LeaseBook(Database(url))
    with book.turn("made", lambda _: None):
        made = Path(log).read_text()
        if not made:
            sleep(0.2)
            Path(log).write_text(made + f"{os.getpid()}\n")
    book.close()


def test_of_several_processes_one_makes_it(store, tmp_path) -> None:
    log = tmp_path / "log"
    log.touch()
    program = textwrap.dedent(f"""
        import sys
        sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
        from test_lease import make_or_wait
        make_or_wait({store.database.url!r}, {str(log)!r})
    """)
    processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [p.wait(timeout=60) for p in processes] == [0] * 4
    assert len(log.read_text().splitlines()) == 1
