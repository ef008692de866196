import os
import signal
import subprocess
import sys
import textwrap
import threading
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from processes import wait_for
from sqlalchemy import select

from prefect_tune.storage import ArtifactStore
from prefect_tune.storage.database import Database
from prefect_tune.storage.holder import Holder
from prefect_tune.storage.lease import LeaseBook, lease_table


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
