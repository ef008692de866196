"""Opening of a store: its folder, its database, and the claim that ties both together.

The claim, a file in the folder, holds the id of the store. Opening a new store creates its tables,
and opening an older store upgrades its tables. To change the tables, edit `storage.schema`, raise
`SCHEMA` there to N, and add a function to `_UPGRADES` that upgrades schema N - 1 to N with Alembic
operations:

    def _to_n(op: "Operations") -> None:
        op.add_column("trials", Column("loss", Double, nullable=True))

Add columns and tables, but never drop columns, tables or keys of JSON documents, because running
processes of the previous version may need the dropped parts.
"""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sqlalchemy import URL, Row, func, insert, inspect, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, DatabaseLost, as_written
from prefect_tune.storage.files import CLAIM_FILE, RECORDS, Files, StoreAway, StoreRefused
from prefect_tune.storage.keys import canonical_json
from prefect_tune.storage.local_files import (
    atomic_file,
    check_writable,
    make_private,
    make_private_file,
)
from prefect_tune.storage.masking import masked
from prefect_tune.storage.schema import FIRST_SCHEMA, SCHEMA, metadata, store_table

if TYPE_CHECKING:
    from alembic.operations import Operations

_UPGRADES: dict[int, Callable[["Operations"], None]] = {}
"""Functions that upgrade the previous schema, by number of the new schema."""
_ROW = select(store_table.c.id, store_table.c.schema, store_table.c.url)
"""Query for the columns that every schema has. A store may be refused for its schema number."""
_LOCK = 0x7072_7475
"""Number of the PostgreSQL advisory lock for changes of the tables."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Address of a store, in the form that is sent to workers.

    Attributes:
        url: fsspec URL of the store's folder.
        database: SQLAlchemy URL of the index; empty for a SQLite file in a local folder.
        id: Id of the store; empty if any existing or new store may be opened.
    """

    url: str
    database: str = ""
    id: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"StoreAddress({masked(self.url)!r}, {masked(self.database)!r})"


def opened(
    address: StoreAddress, files: Files, budget_bytes: int, *, is_read: bool = False
) -> tuple[Database, str]:
    """Return the database and the id of a store, creating a new store if none exists.

    If `is_read` is true, an existing store may be read-only.

    Raises:
        StoreRefused: If the folder is not writable, belongs to another index, or has the format of
            another version; or if a remote URL is given without a database.
        StoreAway: If the folder or the database does not answer.
    """
    if not files.is_local and not address.database:
        raise StoreRefused(
            f"the store {address.url} is remote, so its index needs a database that all workers "
            "can reach; name a PostgreSQL database with --database"
        )
    if files.is_local and address.id:
        claim = _read_claim(files)
        if claim != address.id:  # an unmounted mount point is empty
            found = "contains no store" if claim is None else "contains another store"
            raise StoreAway(f"the folder of the store {address.url} is missing or {found}")
    elif files.is_local and not (is_read and is_there(address, files)):
        try:
            make_private(folder := Path(files.root))
            check_writable(folder / CLAIM_FILE)
        except OSError as error:
            raise StoreRefused(
                f"the store {address.url} cannot be written: {error}; name a writable folder with "
                "--store"
            ) from error
    index = str(Path(files.root) / "index.sqlite")  # URL.create quotes a `?` in the path
    database = Database(address.database or URL.create("sqlite", database=index))
    database.belong_to(address.id)
    try:
        return database, _claimed(address, files, database, budget_bytes)
    except DatabaseLost as error:
        database.close()
        raise StoreAway(f"{error}; name another database with --database") from error
    except BaseException:
        database.close()
        raise


def is_there(address: StoreAddress, files: Files) -> bool:
    """Return whether a store exists, without creating one; raises StoreAway if unreachable."""
    try:
        return bool(files.filesystem.exists(files.path(CLAIM_FILE)))
    except OSError as error:
        raise StoreAway(f"the store {address.url} cannot be read: {error}") from error


def _claimed(address: StoreAddress, files: Files, database: Database, budget_bytes: int) -> str:
    """Tie a folder to its index, or check that they belong together; return the store's id."""
    if not address.id and database.is_missing_file() and is_there(address, files):
        raise StoreRefused(
            f"the database {database.url} of the store {address.url} is missing; restore it, name "
            "the database with --database, or name a new folder with --store"
        )
    database.keep_private()
    claimed = _read_claim(files)
    with database.read() as connection:
        row = _row(connection)
    if row is None or claimed is None:  # new, or another process is claiming it
        with database.write() as connection:
            _lock_tables(connection)
            claimed, row = _read_claim(files), _row(connection)
            areas, disk = [files.path(area) for area in ("cache", RECORDS)], files.filesystem
            has_contents = any(disk.exists(area) and disk.ls(area) for area in areas)
            # If only the claim exists, the commit that should have created the store failed.
            if row is None and (claimed is None or not has_contents):
                store_id = claimed or uuid4().hex
                metadata.create_all(connection)
                new = {"id": store_id, "schema": SCHEMA, "url": masked(address.url)}
                new |= {"cache_bytes": 0, "budget_bytes": budget_bytes}
                connection.execute(insert(store_table).values(**new))
                claim = canonical_json({"index": store_id})
                try:
                    if files.is_local:  # other processes read the claim without the lock
                        Path(files.path(RECORDS)).mkdir(exist_ok=True)
                        with atomic_file(Path(files.path(CLAIM_FILE))) as temporary:
                            temporary.write_text(claim)
                    else:
                        disk.pipe_file(files.path(CLAIM_FILE), claim.encode())
                except OSError as error:
                    text = f"the store {address.url} cannot be written: {error}"
                    raise StoreAway(text) from error
                return store_id
    if row is not None:
        with as_written(f"the schema of {database.url}"):
            schema = int(row.schema)
        if schema > SCHEMA:
            raise StoreRefused(
                f"the database {database.url} has format {schema}, but this version of "
                f"prefect-tune reads formats up to {SCHEMA}; install a newer version"
            )
        if schema < FIRST_SCHEMA:
            raise StoreRefused(
                f"the store {address.url} was made by an older version of prefect-tune; name a new "
                "folder with --store and start its studies there"
            )
    if row is None or claimed is None or row.id != claimed:
        whose = f"the store at {row.url}" if row else "no store"
        raise StoreRefused(
            f"the store {address.url} and the database {database.url} do not belong together (the "
            f"database is the index of {whose}); name the database of this store with --database, "
            "or a new folder with --store"
        )
    if schema < SCHEMA:
        _upgrade(database)
    return str(row.id)


def _row(connection: Connection) -> Row[tuple[str, int, str]] | None:
    """Return the database row that describes the store; None if there is no row yet."""
    if not inspect(connection).has_table(store_table.name):
        return None
    return connection.execute(_ROW).first()


def _lock_tables(connection: Connection) -> None:
    """Lock the tables against changes by other processes until the transaction ends."""
    if connection.dialect.name == "postgresql":  # SQLite has one writing transaction at a time
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def _upgrade(database: Database) -> None:
    """Upgrade the tables of a store in one transaction, after copying a SQLite database."""
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext

    with database.write() as connection:
        _lock_tables(connection)
        schema = connection.execute(select(store_table.c.schema)).scalar_one()
        if schema == SCHEMA:  # upgraded by another process
            return
        if file := connection.engine.url.database if database.is_of_one_machine else None:
            copy = Path(f"{file}.schema-{schema}")
            make_private_file(copy)
            with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
        operations = Operations(MigrationContext.configure(connection))
        for later in range(schema + 1, SCHEMA + 1):
            _UPGRADES[later](operations)
        connection.execute(update(store_table).values(schema=SCHEMA))


def _read_claim(files: Files) -> str | None:
    """Return the id of the store that has claimed a folder; None if no store has claimed it."""
    where = files.path(CLAIM_FILE)
    try:
        return str(json.loads(files.filesystem.cat_file(where))["index"])
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreAway(f"{where} cannot be read: {error!r}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise StoreRefused(
            f"{where} cannot be read: {error!r}; restore it from a backup"
        ) from error
