"""Opening a store: its folder, its database, and the claim that ties them together."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from fsspec.utils import get_protocol
from sqlalchemy import URL, insert, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, DatabaseLost, DatabaseRefused, as_written
from prefect_tune.storage.files import CLAIM_FILE, RECORDS, Files, StoreAway, StoreRefused
from prefect_tune.storage.key import ARTIFACT_FORMAT, canonical_json
from prefect_tune.storage.local_files import atomic_file, make_private
from prefect_tune.storage.masking import masked
from prefect_tune.storage.migrations import bring_up_to_date, lock_tables
from prefect_tune.storage.schema import FIRST_SCHEMA, SCHEMA, store_table
from prefect_tune.storage.waiting import Cause, cause_of, lost_for

_ROW = select(store_table.c.id, store_table.c.schema, store_table.c.url)
"""Query for columns that all schemas have, so that a newer schema can be refused by its number."""
_IN_MEMORY: dict[str, Database] = {}
"""Indexes of stores in the memory of this process, by URL."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Address of a store, sent to workers: `url` of the folder, SQLAlchemy URL of the index.

    An empty `database` is SQLite in a local folder; an empty `id` is any store, or a new one.
    """

    url: str
    database: str = ""
    id: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"StoreAddress({masked(self.url)!r}, {masked(self.database)!r})"


def opened(
    address: StoreAddress, files: Files, budget_bytes: int, *, is_read: bool = False
) -> tuple[Database, str]:
    """Return the database of a store, created if the store is new, and the store's id.

    With `is_read`, an existing store may be read-only.

    Raises:
        StoreRefused: If the folder cannot be written, belongs to another index, or was made by a
            newer version; or if a remote URL has no database.
        StoreAway: If folder or database do not answer.
    """
    _check_remote_has_database(address)
    if files.is_local and address.id:
        _check_same(address, files)
    elif files.is_local and not (is_read and is_there(address, files)):
        _make_folder(address, files)
    try:
        database = _database(address, files)
        database.belong_to(address.id)
        try:
            return database, _claimed(address, files, database, budget_bytes)
        except BaseException:
            database.close()
            raise
    except DatabaseRefused as error:
        is_away = isinstance(error.__cause__, DatabaseLost)
        raise (StoreAway if is_away else StoreRefused)(str(error)) from error


def is_there(address: StoreAddress, files: Files) -> bool:
    """Return whether a store exists, without creating one; raises StoreAway if unreadable."""
    try:
        return bool(files.filesystem.exists(files.path(CLAIM_FILE)))
    except OSError as error:
        raise StoreAway(f"the store {address.url} cannot be read: {error}") from error


def lives_in_memory(database: Database) -> bool:
    """Return whether a database is the index of an in-memory store of this process."""
    return database in _IN_MEMORY.values()


def _claimed(address: StoreAddress, files: Files, database: Database, budget_bytes: int) -> str:
    """Tie folder and index together, or check that they belong together; return the store's id."""
    if not address.id and database.is_missing_file() and is_there(address, files):
        raise StoreRefused(
            f"the database {database.url} of the store {address.url} is missing; restore it, name "
            "the database with --database, or name a new folder with --store"
        )
    database.keep_private()
    try:
        schema = bring_up_to_date(database)
    except DatabaseLost as error:
        raise DatabaseRefused(f"{error}; name another database with --database") from error
    if schema < FIRST_SCHEMA:
        raise StoreRefused(
            f"the store {address.url} has schema {schema}, from before version 0.2, but this "
            f"version reads schemas from {FIRST_SCHEMA} on; name a new folder with --store and "
            "start its studies there"
        )
    with database.read() as connection:
        claimed, row = _read_claim(files), connection.execute(_ROW).first()
    if row is None or claimed is None:  # new, or another process is claiming it
        with database.write() as connection:
            lock_tables(connection)
            claimed, row = _read_claim(files), connection.execute(_ROW).first()
            # A claim without contents and without a row: the commit of the first start failed.
            if row is None and (claimed is None or not _has_contents(files)):
                store_id = uuid4().hex if claimed is None else claimed["index"]
                return _claim(address, files, connection, budget_bytes, store_id)
    if claimed is not None:
        _check_format(f"the store {address.url}", claimed["format"])
    if row is not None:
        with as_written(f"the schema of {database.url}"):
            schema = int(row.schema)
        _check_format(f"the database {database.url}", schema, SCHEMA)
    if row is None or claimed is None or row.id != claimed["index"]:
        whose = f"the store at {row.url}" if row else "no store"
        raise StoreRefused(
            f"the store {address.url} and the database {database.url} do not belong together (the "
            f"database is the index of {whose}); name the database of this store with --database, "
            "or a new folder with --store"
        )
    return str(row.id)


def _claim(
    address: StoreAddress, files: Files, connection: Connection, budget_bytes: int, store_id: str
) -> str:
    connection.execute(
        insert(store_table).values(
            id=store_id, schema=SCHEMA, url=masked(address.url), budget_bytes=budget_bytes
        )
    )
    claim = canonical_json({"format": ARTIFACT_FORMAT, "index": store_id})
    try:
        if files.is_local:  # other processes read the claim without waiting for the lock
            Path(files.path(RECORDS)).mkdir(exist_ok=True)
            with atomic_file(Path(files.path(CLAIM_FILE))) as aside:
                aside.write_text(claim)
        else:
            files.filesystem.pipe_file(files.path(CLAIM_FILE), claim.encode())
    except OSError as error:
        raise StoreAway(f"the store {address.url} cannot be written: {error}") from error
    return store_id


def _has_contents(files: Files) -> bool:
    areas = [files.path(area) for area in ("cache", RECORDS)]
    return any(files.filesystem.exists(area) and files.filesystem.ls(area) for area in areas)


def _check_format(what: str, found: int, known: int = ARTIFACT_FORMAT) -> None:
    if found > known:
        raise StoreRefused(
            f"{what} has format {found}, but this version of prefect-tune reads formats up to "
            f"{known}; use a newer version"
        )


def _read_claim(files: Files) -> dict[str, Any] | None:
    where = files.path(CLAIM_FILE)
    try:
        claim = json.loads(files.filesystem.cat_file(where))
        return {"format": int(claim["format"]), "index": str(claim["index"])}
    except FileNotFoundError:
        return None
    except OSError as error:
        if cause_of(error) == Cause.PROCESS:
            raise lost_for(Cause.PROCESS, where, error) from error
        raise StoreAway(f"{where} cannot be read: {error!r}") from error
    except (KeyError, TypeError, ValueError) as error:
        raise StoreRefused(
            f"{where} cannot be read: {error!r}; restore it from a backup"
        ) from error


def _check_same(address: StoreAddress, files: Files) -> None:
    """Raise unless the folder holds this store: an unmounted mount point is empty."""
    claim = _read_claim(files)
    if claim is None or claim["index"] != address.id:
        found = "has no store" if claim is None else "has another store"
        raise StoreAway(f"the folder of the store {address.url} is missing, or {found}")


def _make_folder(address: StoreAddress, files: Files) -> None:
    folder = Path(files.root)
    try:
        make_private(folder)
        probe = folder / f".{uuid4().hex}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StoreRefused(
            f"the store {address.url} cannot be written: {error}; name a writable folder with "
            "--store"
        ) from error


def _database(address: StoreAddress, files: Files) -> Database:
    if address.database:
        return Database(address.database)
    if files.is_local:
        index = str(Path(files.root) / "index.sqlite")  # in a URL as text, `?` would end it
        return Database(URL.create("sqlite", database=index))
    if address.url not in _IN_MEMORY:
        _IN_MEMORY[address.url] = Database("sqlite://")
    return _IN_MEMORY[address.url]


def _check_remote_has_database(address: StoreAddress) -> None:
    if get_protocol(address.url) not in ("file", "local", "memory") and not address.database:
        raise StoreRefused(
            f"the store {address.url} is remote, so its index needs a database that all workers "
            "can reach; name a PostgreSQL database with --database"
        )
