"""Making the tables of a new database, and upgrading those of an older one."""

from sqlalchemy import delete, func, insert, inspect, select, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from prefect_tune.storage.database import Database
from prefect_tune.storage.schema import FIRST_SCHEMA, SCHEMA, metadata, revision_table, store_table

_LOCK = 0x7072_7475
"""Number of PostgreSQL's advisory lock that whoever changes tables holds; ours alone."""


def bring_up_to_date(database: Database) -> int:
    """Make the tables of a new database, or upgrade those of an older one; all of that or nothing.

    One that is newer than this version, or older than the first schema, is left as it is for the
    caller to refuse.

    Returns:
        The number of its schema.

    Raises:
        DatabaseLost: If it cannot be read or written.
    """
    with database.read() as connection:
        if _number_of_store(connection) == SCHEMA:
            return SCHEMA  # as a rule, which must be quick
    with database.write() as connection:
        lock_tables(connection)
        number = _number(connection)
        if number is None:
            metadata.create_all(connection)
            _note(connection, SCHEMA)
        elif number < FIRST_SCHEMA or number >= SCHEMA:
            return number
        else:
            _note(connection, number)
            from prefect_tune.storage.migrations.running import run_migrations

            run_migrations(connection)
            connection.execute(update(store_table).values(schema=SCHEMA))
    return SCHEMA


def lock_tables(connection: Connection) -> None:
    """Let no other process make or claim tables until a transaction that may write has ended."""
    if connection.dialect.name == "postgresql":  # SQLite has one such transaction at a time
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _number_of_store(connection: Connection) -> int | None:
    """Return the number of the schema that a store's row has; None if there is no such row."""
    try:
        return connection.execute(select(store_table.c.schema)).scalar()
    except DBAPIError:  # a new database has no such table
        return None


def _number(connection: Connection) -> int | None:
    """Return the number of a database's schema; None if it has no tables of ours."""
    tables = inspect(connection).get_table_names()
    if revision_table.name in tables:
        number = connection.execute(select(revision_table.c.version_num)).scalar()
        return None if number is None else int(number)
    if store_table.name not in tables:
        return None
    return _number_of_store(connection) or 1


def _note(connection: Connection, number: int) -> None:
    revision_table.create(connection, checkfirst=True)
    connection.execute(delete(revision_table))
    connection.execute(insert(revision_table).values(version_num=str(number)))
