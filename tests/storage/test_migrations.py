"""An older database is upgraded as it is opened: once, and to the end or not at all."""

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from alembic.operations import Operations
from contracts.store import POSTGRES_IN_FULL
from hammering import run_killed, run_together
from sqlalchemy import Column, Double, Integer, event, inspect, select, text, update
from sqlalchemy.engine import Engine
from sqlalchemy.schema import CreateIndex, CreateTable

from prefect_tune.storage import opening
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress, StoreRefused
from prefect_tune.storage.database import Database
from prefect_tune.storage.keys import digest
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.schema import SCHEMA, metadata, store_table

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def database(either_address) -> Iterator[Database]:
    """That of the store."""
    database = Database(either_address.database or f"sqlite:///{either_address.url}/index.sqlite")
    yield database
    database.close()


NEXT = SCHEMA + 1


def to_next(op: Operations) -> None:
    """A later upgrade."""
    op.create_table("planted", Column("id", Integer, primary_key=True))
    op.add_column("studies", Column("loss", Double, nullable=True))


def plant() -> None:
    """Let this process be of the version that brings the next schema."""
    opening._UPGRADES[NEXT] = to_next
    opening.SCHEMA = NEXT


@pytest.fixture
def planted(monkeypatch) -> None:
    """This process is of the next version."""
    monkeypatch.setattr(opening, "SCHEMA", SCHEMA)
    monkeypatch.setattr(opening, "_UPGRADES", {})
    plant()


@pytest.fixture
def old(either_address) -> StoreAddress:
    """A store of this version with a study in it."""
    store = ArtifactStore(either_address)
    Ledger(store.database).create_study("s", {"metric": "error"}, {})
    store.close()
    return either_address


def state(database: Database) -> tuple[int, set[str]]:
    """The number of its schema, and the names of its tables."""
    with database.read() as connection:
        number = connection.execute(select(store_table.c.schema)).scalar_one()
        return number, set(inspect(connection).get_table_names())


def test_tables_change_only_with_the_number_of_the_schema() -> None:
    tables = [str(CreateTable(t)) for t in metadata.sorted_tables]
    indexes = sorted(str(CreateIndex(i)) for t in metadata.sorted_tables for i in t.indexes)
    assert (SCHEMA, digest("".join([*tables, *indexes]).encode())[:16]) == (8, "1f855af78312238c")


def test_an_older_store_is_upgraded_and_has_what_it_had(request, old, database) -> None:
    request.getfixturevalue("planted")
    assert state(database)[0] == SCHEMA
    for _ in range(2):  # the second time, nothing is upgraded
        store = ArtifactStore(old)
        assert state(database) == (NEXT, {*metadata.tables, "planted"})
        assert Ledger(store.database).study("s").problem == {"metric": "error"}
        with database.read() as connection:
            assert connection.execute(text("SELECT loss FROM studies")).scalar_one() is None
        store.close()
    if not old.database:
        with closing(sqlite3.connect(f"{old.url}/index.sqlite.schema-{SCHEMA}")) as copy:
            assert copy.execute("SELECT schema FROM store").fetchone() == (SCHEMA,)
            assert copy.execute("SELECT name FROM studies").fetchone() == ("s",)


def test_a_store_of_a_development_version_is_refused_and_left_alone(old, database) -> None:
    with database.write() as connection:
        connection.execute(update(store_table).values(schema=7))
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('7')"))
        connection.execute(text("ALTER TABLE store RENAME COLUMN budget_bytes TO budget"))
    before = state(database)
    with pytest.raises(StoreRefused, match="older version"):
        ArtifactStore(old)
    assert state(database) == before


def open_store(either_address: StoreAddress, barrier) -> None:
    plant()
    barrier.wait(60)
    ArtifactStore(either_address).close()


@POSTGRES_IN_FULL
@pytest.mark.slow
@pytest.mark.parametrize("is_new", [False, pytest.param(True, marks=pytest.mark.full)])
def test_processes_that_open_it_at_once_upgrade_it_once(
    request, either_address, database, is_new
) -> None:
    if not is_new:
        request.getfixturevalue("old")
    barrier = SPAWN.Barrier(2)
    run_together(open_store, *[(either_address, barrier)] * 2)
    assert state(database)[0] == NEXT
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM store")).scalar_one() == 1


def open_and_die(either_address: StoreAddress) -> None:
    """Open a store, and be killed when half of its migration is done."""

    def die(*about: object) -> None:
        if "CREATE TABLE planted" in str(about[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    plant()
    event.listen(Engine, "after_cursor_execute", die)
    ArtifactStore(either_address)


@POSTGRES_IN_FULL
@pytest.mark.slow
def test_who_is_killed_while_it_upgrades_leaves_it_as_it_was(request, old, database) -> None:
    run_killed(open_and_die, old)
    assert state(database) == (SCHEMA, set(metadata.tables))
    request.getfixturevalue("planted")
    ArtifactStore(old).close()
    assert state(database)[0] == NEXT


def test_a_newer_one_is_refused_and_left_alone(old, database) -> None:
    with database.write() as connection:
        connection.execute(update(store_table).values(schema=SCHEMA + 1))
        connection.execute(text("ALTER TABLE store RENAME COLUMN budget_bytes TO budget"))
    with pytest.raises(StoreRefused, match=rf"format {SCHEMA + 1}"):
        ArtifactStore(old)
    assert state(database)[0] == SCHEMA + 1
