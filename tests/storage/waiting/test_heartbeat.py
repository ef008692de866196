"""What is done every few seconds goes on after the database has failed, and says so once."""

import logging
from dataclasses import replace
from threading import Event

import pytest
from processes import wait_for
from sqlalchemy import select, text

from prefect_tune.flows.study import lease as lease_module
from prefect_tune.flows.study.lease import StudyClock
from prefect_tune.storage import ArtifactStore, Ledger
from prefect_tune.storage.lease import LeaseBook
from prefect_tune.storage.schema import lease_table
from prefect_tune.storage.waiting.heartbeat import Heartbeat
from prefect_tune.storage.waiting.outage import OUTAGE_VARIABLE


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, address, postgres):
    database = postgres.new_database() if request.param == "postgresql" else ""
    opened = ArtifactStore(replace(address, database=database))
    yield opened
    opened.close()


def rename(store: ArtifactStore, table: str, to: str) -> None:
    """Take a table away, or bring it back: all that uses it fails meanwhile."""
    with store.database.write() as connection:
        connection.execute(text(f"ALTER TABLE {table} RENAME TO {to}"))


def warnings(caplog, beginning: str) -> list[str]:
    return [m for m in caplog.messages if m.startswith(beginning)]


def test_leases_are_renewed_again_after_an_outage(store, caplog) -> None:
    def expires() -> float:
        with store.database.read() as connection:
            return connection.execute(select(lease_table.c.expires)).scalar_one()

    book = LeaseBook(store.database, lease_seconds=0.2)
    assert book.acquire("a")
    with caplog.at_level(logging.WARNING):
        rename(store, "leases", "away")
        wait_for(lambda: warnings(caplog, "leases are not renewed, and it is tried again: "))
        rename(store, "away", "leases")
        at_its_end = expires()
        wait_for(lambda: expires() > at_its_end)
    assert len(warnings(caplog, "leases are not renewed")) == 1
    book.close()


def test_the_time_of_a_session_is_noted_again_after_an_outage(store, caplog, monkeypatch) -> None:
    monkeypatch.setattr(lease_module, "_BEAT_SECONDS", 0.02)
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.1")  # it lasts longer than a beat waits for it
    ledger = Ledger(store.database)
    ledger.create_study("s", {}, {})
    with caplog.at_level(logging.WARNING), StudyClock(ledger, "s", 0.0).running():
        rename(store, "sessions", "away")
        wait_for(lambda: warnings(caplog, "the study's time is not noted, and it is tried again"))
        rename(store, "away", "sessions")
        before = ledger.study("s").seconds
        wait_for(lambda: ledger.study("s").seconds > before)
    assert len(warnings(caplog, "the study's time is not noted")) == 1


def test_each_outage_is_said_once(caplog) -> None:
    outcomes = [ValueError("one"), ValueError("two"), None, ValueError("three"), ValueError("four")]
    ended = Event()

    def beat() -> None:
        if not outcomes:
            ended.set()
        elif error := outcomes.pop(0):
            raise error

    heartbeat = Heartbeat("test", beat, 0.001, "nothing is done")
    with caplog.at_level(logging.WARNING):
        heartbeat.start()
        assert ended.wait(60)
        heartbeat.stop()
    said = [f"nothing is done, and it is tried again: {which}" for which in ("one", "three")]
    assert caplog.messages == said
