"""An older database is upgraded as it is opened: once, and to the end or not at all."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event, inspect, select, text, update
from sqlalchemy.engine import Engine

from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress, StoreRefused
from prefect_tune.storage.database import SCHEMA, Database, metadata, store_table
from prefect_tune.storage.migrations.running import run_migrations

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


@pytest.fixture
def old(address, database) -> StoreAddress:
    """A store of version 0.1 with a study in it."""
    store = ArtifactStore(address)
    Ledger(store.database).create_study("s", {"metric": "error"}, {})
    store.close()
    with database.write() as connection:
        studies = connection.execute(text("SELECT * FROM studies")).mappings().one()
        row = connection.execute(text("SELECT * FROM store")).mappings().one()
        metadata.drop_all(connection)
        run_migrations(connection, "1")
        connection.execute(text("DROP TABLE alembic_version"))  # which nobody knew of then
        values = {**row, "schema": 1}
        connection.execute(metadata.tables["store"].insert().values(values))
        decoded = {**studies, "problem": {"metric": "error"}, "settings": {}, "result": {}}
        connection.execute(metadata.tables["studies"].insert().values(decoded))
    return address


def state(database: Database) -> tuple[int, set[str]]:
    """The number of its schema, and the names of its tables."""
    with database.read() as connection:
        number = connection.execute(select(store_table.c.schema)).scalar_one()
        return number, set(inspect(connection).get_table_names())


def test_migrations_make_the_tables_that_are_declared(address, database, tmp_path) -> None:
    tmp_path.joinpath("store").mkdir()
    with database.write() as connection:
        run_migrations(connection)
        found = compare_metadata(MigrationContext.configure(connection), metadata)
        assert found == []
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    assert address


def test_an_older_store_is_upgraded_and_has_what_it_had(old, database) -> None:
    assert state(database)[0] == 1
    store = ArtifactStore(old)
    number, tables = state(database)
    assert number == SCHEMA
    assert tables == set(metadata.tables)
    assert Ledger(store.database).study("s").problem == {"metric": "error"}
    with database.read() as connection:
        noted = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        assert int(noted) == SCHEMA
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    store.close()


def test_a_store_that_got_its_memos_before_they_had_a_number_is_upgraded(old, database) -> None:
    with database.write() as connection:
        metadata.tables["memos"].create(connection)
    ArtifactStore(old).close()
    assert state(database)[0] == SCHEMA


def open_store(address: StoreAddress, barrier) -> None:
    barrier.wait(60)
    ArtifactStore(address).close()


@pytest.mark.parametrize("is_new", [False, True])
def test_processes_that_open_it_at_once_upgrade_it_once(request, address, database, is_new) -> None:
    if not is_new:
        request.getfixturevalue("old")
    barrier = SPAWN.Barrier(4)
    processes = [SPAWN.Process(target=open_store, args=(address, barrier)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [p.exitcode for p in processes] == [0] * 4
    assert state(database)[0] == SCHEMA
    with database.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM store")).scalar_one() == 1


def open_and_die(address: StoreAddress) -> None:
    """Open a store, and be killed when half of its migration is done."""

    def die(*about: object) -> None:
        if "CREATE INDEX record_users_by_study" in str(about[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "after_cursor_execute", die)
    ArtifactStore(address)


def test_who_is_killed_while_it_upgrades_leaves_it_as_it_was(old, database) -> None:
    process = SPAWN.Process(target=open_and_die, args=(old,))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    number, tables = state(database)
    assert number == 1
    assert {"memos", "alembic_version"}.isdisjoint(tables)
    ArtifactStore(old).close()
    assert state(database)[0] == SCHEMA


def test_a_newer_one_is_refused_and_left_alone(old, database) -> None:
    ArtifactStore(old).close()
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
