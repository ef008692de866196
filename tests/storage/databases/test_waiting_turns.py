"""Whoever waits for an artifact looks; it writes when it may get its turn, and not before."""

import threading
from dataclasses import replace

import pytest
from contracts.store import entry, made
from processes import wait_for
from sqlalchemy import event

from prefect_tune.storage import ArtifactStore


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, address, postgres):
    database = postgres.new_database() if request.param == "postgresql" else ""
    opened = ArtifactStore(replace(address, database=database), memory_bytes=0)
    yield opened
    opened.close()


def statements_of(thread: threading.Thread, store: ArtifactStore) -> list[str]:
    """What a thread has the database do from now on."""
    found: list[str] = []

    def note(*about: object) -> None:
        if threading.current_thread() is thread:
            found.append(str(about[2]))

    event.listen(store.database.engine, "before_cursor_execute", note)
    return found


def test_who_waits_reads_and_takes_no_lease_for_what_was_made_meanwhile(store) -> None:
    going_on, came = threading.Event(), []

    def make():
        going_on.wait()
        return made()

    maker = threading.Thread(target=lambda: store.get_or_make(entry("a"), {}, make))
    waiter = threading.Thread(target=lambda: came.append(store.get_or_make(entry("a"), {}, made)))
    maker.start()
    wait_for(lambda: store.leases.holder(f"artifact {entry('a').key}"))
    statements = statements_of(waiter, store)
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


def test_who_waits_for_one_that_fails_makes_it(store) -> None:
    going_on, came = threading.Event(), []

    def fail():
        going_on.wait()
        raise ValueError("no luck")

    def try_it() -> None:
        with pytest.raises(ValueError, match="no luck"):
            store.get_or_make(entry("a"), {}, fail)

    maker = threading.Thread(target=try_it)
    waiter = threading.Thread(target=lambda: came.append(store.get_or_make(entry("a"), {}, made)))
    maker.start()
    wait_for(lambda: store.leases.holder(f"artifact {entry('a').key}"))
    waiter.start()
    going_on.set()
    for thread in (maker, waiter):
        thread.join(60)
    ((kept, fresh),) = came
    assert kept.is_present
    assert fresh is not None
