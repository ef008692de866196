"""Databases under many writers, many keys and few connections, and upgrades of older ones."""

import gc
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.operations import Operations
from contracts.store import schema_of
from sqlalchemy import (
    Column,
    Double,
    Integer,
    create_engine,
    insert,
    text,
    update,
)
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateIndex, CreateTable

from prefect_tune.storage import opening
from prefect_tune.storage.artifacts import ArtifactStore, StoreRefused
from prefect_tune.storage.database import Database
from prefect_tune.storage.keys import digest
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.notices import Notice, noticed_by
from prefect_tune.storage.schema import (
    SCHEMA,
    metadata,
    record_table,
    record_user_table,
    store_table,
)


def test_unreferenced_database_closes_all_connections(tmp_path) -> None:
    database = Database(f"sqlite:///{tmp_path}/index.sqlite")
    with database.read() as connection:
        raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    del database, connection
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raw.execute("SELECT 1")


@pytest.mark.full
def test_work_waits_for_a_connection_if_all_connections_are_taken(address, postgres) -> None:
    address = replace(address, database=postgres.new_database())
    ArtifactStore(address).close()
    engine = create_engine(address.database, poolclass=NullPool)
    taken, heard = ExitStack(), []

    def give_back(notice: Notice) -> None:
        heard.append(notice.kind)
        taken.close()

    with suppress(OperationalError):
        while True:
            taken.enter_context(engine.connect())
    with noticed_by(give_back):
        ArtifactStore(address).close()
    assert set(heard) == {"outage"}


MANY = 70_000
"""More than PostgreSQL (65,535) takes in one statement, or SQLite (32,766 as it comes)."""
KEYS = [f"{number:064x}" for number in range(MANY)]


@pytest.mark.full
@pytest.mark.parametrize("either_address", ["postgresql"], indirect=True)
def test_any_number_of_keys_can_be_looked_up_pinned_linked_and_released(either_store) -> None:
    index, records = either_store.index, either_store.records
    assert index.entries(KEYS) == {}
    assert index.bytes_present(KEYS, "s") == 0
    index.pins.set(KEYS, "large", 60)
    index.pins.set(KEYS[:5], "large", 60, released=KEYS[5:])
    index.pins.release("large")
    shared = KEYS[:10]
    part = {"digest": "", "size_bytes": 1, "codec": "json", "signature": ""}
    rows = [
        {"id": key, "size_bytes": 1, "created": 0.0, "parts": {"x": {"file": f"{key}/x", **part}}}
        for key in KEYS[:100]
    ]
    with either_store.database.write() as connection:
        connection.execute(insert(record_table), rows)
        used = [{"record": key, "study": "small"} for key in shared]
        connection.execute(insert(record_user_table), used)
    records.link(KEYS, "large")
    assert len(records.release("large")) == 100 - len(shared)
    assert sorted(records.ids()) == records.used_by("small") == shared
    assert index.journal.unfinished() == []


@pytest.mark.slow
def test_closed_descriptors_do_not_make_sqlite_write_into_other_files(tmp_path) -> None:
    code = """
import os
import sys
from sqlalchemy import text
from prefect_tune.storage.database import Database
from prefect_tune.storage.waiting import ProcessExhausted

database = Database(f"sqlite:///{sys.argv[1]}/index.sqlite")
with database.write() as connection:
    connection.execute(text("CREATE TABLE numbers (number INTEGER)"))
os.closerange(3, 256)
others = [open(f"{sys.argv[1]}/other-{i}", "w+") for i in range(20)]
try:
    with database.write() as connection:
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
except ProcessExhausted:
    os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == 7
    assert not any(path.stat().st_size for path in tmp_path.glob("other-*"))


NEXT = SCHEMA + 1


def to_next(op: Operations) -> None:
    """Upgrade to the next schema."""
    op.create_table("planted", Column("id", Integer, primary_key=True))
    op.add_column("studies", Column("loss", Double, nullable=True))


@pytest.fixture
def old(either_address) -> Iterator[ArtifactStore]:
    """An open store of this version with a study in it."""
    store = ArtifactStore(either_address)
    Ledger(store.database).create_study("s", {"metric": "error"}, {})
    yield store
    store.close()


def test_tables_change_only_with_the_schema_number() -> None:
    tables = [str(CreateTable(t)) for t in metadata.sorted_tables]
    indexes = sorted(str(CreateIndex(i)) for t in metadata.sorted_tables for i in t.indexes)
    assert (SCHEMA, digest("".join([*tables, *indexes]).encode())[:16]) == (9, "1f855af78312238c")


def test_older_store_is_upgraded_without_losing_data(old, monkeypatch) -> None:
    monkeypatch.setattr(opening, "SCHEMA", NEXT)
    monkeypatch.setitem(opening._UPGRADES, NEXT, to_next)
    for _ in range(2):  # the second time, nothing is upgraded
        store = ArtifactStore(old.address)
        assert schema_of(store) == (NEXT, {*metadata.tables, "planted"})
        assert Ledger(store.database).study("s").problem == {"metric": "error"}
        assert store.database.scalar(text("SELECT loss FROM studies")) is None
        store.close()
    if not old.address.database:
        copy = Path(old.address.url) / f"index.sqlite.schema-{SCHEMA}"
        with closing(sqlite3.connect(copy)) as before:
            assert before.execute("SELECT schema FROM store").fetchone() == (SCHEMA,)
            assert before.execute("SELECT name FROM studies").fetchone() == ("s",)


@pytest.mark.parametrize(("schema", "reason"), [(7, "older version"), (NEXT, f"format {NEXT}")])
def test_store_of_a_development_or_newer_version_is_refused_and_unchanged(
    old, schema, reason
) -> None:
    with old.database.write() as connection:
        connection.execute(update(store_table).values(schema=schema))
        connection.execute(text("ALTER TABLE store RENAME COLUMN budget_bytes TO budget"))
    before = schema_of(old)
    with pytest.raises(StoreRefused, match=reason):
        ArtifactStore(old.address)
    assert schema_of(old) == before
    with old.database.write() as connection:
        connection.execute(text("ALTER TABLE store RENAME COLUMN budget TO budget_bytes"))
