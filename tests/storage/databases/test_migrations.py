"""An older database is upgraded as it is opened: once, and to the end or not at all."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event, inspect, select, text, update
from sqlalchemy.engine import Engine
from sqlalchemy.schema import CreateIndex, CreateTable

from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress, StoreRefused, opening
from prefect_tune.storage.database import SCHEMA, Database, metadata, store_table
from prefect_tune.storage.key import digest
from prefect_tune.storage.migrations import running, upgrade

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, address, postgres) -> StoreAddress:
    is_server = request.param == "postgresql"
    return replace(address, database=postgres.new_database() if is_server else "")


@pytest.fixture
def database(address) -> Iterator[Database]:
    """That of the store."""
    database = Database(address.database or f"sqlite:///{address.url}/index.sqlite")
    yield database
    database.close()


NEXT = """
from alembic import op
from sqlalchemy import Column, Double, Integer

revision, down_revision = "3", "2"

def upgrade() -> None:
    op.create_table("planted", Column("id", Integer, primary_key=True))
    op.add_column("studies", Column("loss", Double, nullable=True))
"""
"""A later revision, as it is written in the folder of versions."""


def plant(folder: Path) -> None:
    """Let this process be of the version that brings the next revision."""
    shutil.copytree(running.FOLDER / "versions", folder / "versions", dirs_exist_ok=True)
    (folder / "versions" / "r3_planted.py").write_text(NEXT)
    running.FOLDER, upgrade.SCHEMA, opening.SCHEMA = folder, 3, 3


@pytest.fixture
def planted(tmp_path, monkeypatch) -> Path:
    """The folder of migrations of the next version, which this process is of."""
    for module in (upgrade, opening):
        monkeypatch.setattr(module, "SCHEMA", SCHEMA)
    monkeypatch.setattr(running, "FOLDER", running.FOLDER)
    plant(tmp_path / "migrations")
    return tmp_path / "migrations"


@pytest.fixture
def old(address) -> StoreAddress:
    """A store of this version with a study in it."""
    store = ArtifactStore(address)
    Ledger(store.database).create_study("s", {"metric": "error"}, {})
    store.close()
    return address


def state(database: Database) -> tuple[int, set[str]]:
    """The number of its schema, and the names of its tables."""
    with database.read() as connection:
        number = connection.execute(select(store_table.c.schema)).scalar_one()
        return number, set(inspect(connection).get_table_names())


def test_tables_change_only_with_the_number_of_the_schema() -> None:
    tables = [str(CreateTable(t)) for t in metadata.sorted_tables]
    indexes = sorted(str(CreateIndex(i)) for t in metadata.sorted_tables for i in t.indexes)
    assert (SCHEMA, digest("".join([*tables, *indexes]).encode())[:16]) == (2, "cde150c9383a1830")


def test_an_older_store_is_upgraded_and_has_what_it_had(
    old,
    database,
    planted,  # noqa: ARG001 - after the store was made
) -> None:
    assert state(database)[0] == SCHEMA
    store = ArtifactStore(old)
    assert state(database) == (3, {*metadata.tables, "planted"})
    assert Ledger(store.database).study("s").problem == {"metric": "error"}
    with database.read() as connection:
        assert connection.execute(text("SELECT loss FROM studies")).scalar_one() is None
        noted = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        assert noted == "3"
    store.close()


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_store_from_before_the_first_schema_is_refused_and_left_alone(
    old, database, is_noted
) -> None:
    with database.write() as connection:
        connection.execute(update(store_table).values(schema=1))
        change = "UPDATE alembic_version SET version_num = '1'"
        connection.execute(text(change if is_noted else "DROP TABLE alembic_version"))
    before = state(database)
    with pytest.raises(StoreRefused) as refused:
        ArtifactStore(old)
    for part in (old.url, "schema 1", "--store"):
        assert part in str(refused.value)
    assert state(database) == before


def open_store(address: StoreAddress, barrier, folder: Path) -> None:
    plant(folder)
    barrier.wait(60)
    ArtifactStore(address).close()


@pytest.mark.parametrize("is_new", [False, True])
def test_processes_that_open_it_at_once_upgrade_it_once(
    request, address, database, is_new, planted
) -> None:
    if not is_new:
        request.getfixturevalue("old")
    barrier = SPAWN.Barrier(4)
    processes = [
        SPAWN.Process(target=open_store, args=(address, barrier, planted)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [p.exitcode for p in processes] == [0] * 4
    assert state(database)[0] == 3
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM store")).scalar_one() == 1


def open_and_die(address: StoreAddress, folder: Path) -> None:
    """Open a store, and be killed when half of its migration is done."""

    def die(*about: object) -> None:
        if "CREATE TABLE planted" in str(about[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    plant(folder)
    event.listen(Engine, "after_cursor_execute", die)
    ArtifactStore(address)


def test_who_is_killed_while_it_upgrades_leaves_it_as_it_was(old, database, planted) -> None:
    process = SPAWN.Process(target=open_and_die, args=(old, planted))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert state(database) == (SCHEMA, set(metadata.tables))
    ArtifactStore(old).close()
    assert state(database)[0] == 3


def test_a_newer_one_is_refused_and_left_alone(old, database) -> None:
    with database.write() as connection:
        connection.execute(update(store_table).values(schema=SCHEMA + 1))
    with pytest.raises(StoreRefused, match=rf"format {SCHEMA + 1}, .* reads up to {SCHEMA}; use a"):
        ArtifactStore(old)
    assert state(database)[0] == SCHEMA + 1


def test_opening_a_store_of_today_needs_no_alembic(address) -> None:
    ArtifactStore(address).close()
    program = (
        "import sys; from prefect_tune.storage import ArtifactStore, StoreAddress\n"
        f"ArtifactStore(StoreAddress({address.url!r}, {address.database!r})).close()\n"
        "print('alembic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"False\n"
