"""The SQL database with index, ledger and leases: SQLite in WAL mode, or PostgreSQL.

SQLite creates a missing database file, and keeps using a file that was moved away. Therefore each
new connection checks that the file belongs to the store, and a process that holds leases reconnects
before each renewal.
"""

import errno
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import uuid4
from weakref import finalize

import orjson
from sqlalchemy import (
    URL,
    Double,
    Engine,
    Executable,
    Insert,
    Table,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    InternalError,
    NoSuchModuleError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

from prefect_tune.storage.files import StoreRefused
from prefect_tune.storage.local_files import make_private_file
from prefect_tune.storage.masking import masked
from prefect_tune.storage.waiting import (
    Cause,
    ProcessExhausted,
    StoreLost,
    cause_of,
    deferred_signals,
    lost_for,
    retry_while_unreachable,
)

BUSY_SECONDS = 60
"""Longest wait for a lock in SQLite, or for a free connection to PostgreSQL."""
_LIBPQ = {
    "connect_timeout": 10,  # s
    "tcp_user_timeout": 30_000,  # ms
    "keepalives_idle": 15,  # s
    "keepalives_interval": 5,  # s
    "keepalives_count": 3,
}
"""Time limits for a silent host (Linux's default is 900 s). A URL may override the limits."""

_PROBE_BYTES = 1 << 16

_KEYS_PER_QUERY = 1_000
"""Number of values in one statement, which databases limit."""

_CROWDED = ("too many clients", "too many connections", "remaining connection slots")
"""PostgreSQL's messages when no connection is left. psycopg has no code for this error."""

Result = TypeVar("Result")
Value = TypeVar("Value")


class _OtherFile(Exception):  # noqa: N818 - the name states the fault
    """The file at the path of a SQLite database belongs to another store."""


class _SqliteFile:
    """The file of a SQLite database, and the id of its store (empty while unknown)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store_id = ""
        # The canary must not be the database's file: closing a descriptor ends SQLite's locks.
        self._canary = os.open(os.devnull, os.O_RDONLY)
        self._null = os.fstat(self._canary)
        finalize(self, os.close, self._canary).atexit = False

    def check_descriptors(self) -> None:
        """Raise ProcessExhausted if other code has closed the file descriptors of this process.

        The number of a closed descriptor can be reused, so SQLite could write to another file.
        """
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._canary), self._null):
                return
        raise ProcessExhausted(
            f"code in process {os.getpid()} has closed file descriptors that the store has opened"
        )

    def probed(self) -> Cause | None:
        """Return the cause of an error if SQLite's error code could mean several causes.

        To find the cause, this method writes a file next to the database. The cause is None if
        writing is forbidden, and `Cause.AWAY` if writing succeeds or the folder is gone.
        """
        probe = self.path.with_name(f".{uuid4().hex}")
        try:
            try:
                probe.write_bytes(bytes(_PROBE_BYTES))
            finally:
                with suppress(OSError):
                    probe.unlink()
        except OSError as error:
            is_forbidden = isinstance(error, PermissionError) or error.errno == errno.EROFS
            return None if is_forbidden else cause_of(error) or Cause.AWAY
        return Cause.AWAY

    def connecting(
        self, _dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]
    ) -> None:
        """Handle SQLAlchemy's event `do_connect`, so that a known store's file is never created.

        In a read-only folder, SQLite cannot write the log that readers need, so the file is opened
        as immutable.
        """
        log = Path(f"{self.path}-wal")
        is_in_use = log.exists() and log.stat().st_size > 0
        is_writable = os.access(self.path.parent, os.W_OK)
        is_frozen = self.path.exists() and not is_in_use and not is_writable
        if self.store_id or is_frozen:
            mode = "immutable=1" if is_frozen else "mode=rw"
            arguments[0] = f"file:{quote(str(self.path.absolute()))}?{mode}"
            options["uri"] = True

    def connected(self, connection: sqlite3.Connection, _record: Any = None) -> None:
        """Prepare a new connection; raises _OtherFile if the file belongs to another store."""
        if self.store_id:
            found = connection.execute("SELECT id FROM store").fetchone()
            if found != (self.store_id,):
                raise _OtherFile(f"{self.path} is not the index of the store")
        connection.isolation_level = None  # transactions are begun by `_begin_sqlite`
        with suppress(sqlite3.OperationalError):  # locked while another process sets the mode
            connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA cache_size=-32768")  # 32 MB, enough for a million rows


def _begin_sqlite(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")


class epoch(FunctionElement[float]):  # noqa: N801 - used as a SQL function
    """Seconds since 1970 by the clock of the database, which all workers share."""

    type = Double()
    inherit_cache = True


@compiles(epoch, "sqlite")
def _epoch_sqlite(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(epoch, "postgresql")
def _epoch_postgresql(*_: Any, **__: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


class DatabaseLost(StoreLost):
    """The database does not answer. If `is_final` is true, waiting does not help."""

    is_final = False


class DatabaseDamaged(StoreLost):
    """A row of the database was changed by other software. Waiting does not help."""

    def __init__(self, what: str, error: Exception, remedy: str = "") -> None:
        why = f"{type(error).__name__}: {error}"
        super().__init__(
            f"{what} is damaged in the database ({why}); restore the database from a backup{remedy}"
        )


@contextmanager
def as_written(what: str, remedy: str = "") -> Iterator[None]:
    """Raise DatabaseDamaged if the `with` block cannot decode a row; the error names `what`."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DatabaseDamaged(what, error, remedy) from error


def is_outage(error: BaseException) -> bool:
    """Return whether an error means that the database does not answer now, but may do so later."""
    cause = (isinstance(error, DatabaseLost) and error.__cause__) or error
    if isinstance(getattr(cause, "orig", None), sqlite3.Error):
        return cause_of(cause) == Cause.AWAY and not getattr(error, "is_final", False)
    return isinstance(
        cause, OperationalError | InterfaceError | InternalError | PoolTimeout | _OtherFile
    )


class Database:
    """Connections to one database. Each process needs only one instance.

    `url` is a SQLAlchemy URL. If the URL is given as a string, special characters must be quoted.
    """

    def __init__(self, url: str | URL) -> None:
        self.url = str(url)
        self._was_reached = False
        self._file: _SqliteFile | None = None
        to_json = partial(json.dumps, separators=(",", ":"))
        options: dict[str, Any] = {"json_serializer": to_json, "json_deserializer": _from_json}
        try:
            given = make_url(url)
            if given.get_backend_name() == "sqlite":
                if not given.database:
                    raise ArgumentError("the file is missing")  # noqa: TRY301 - as SQLAlchemy does
                options["connect_args"] = {"timeout": BUSY_SECONDS, "check_same_thread": False}
            else:
                # A server has about a hundred connections for all processes, so threads share a
                # connection.
                options |= {"pool_size": 1, "max_overflow": 0, "pool_timeout": BUSY_SECONDS}
                options["pool_pre_ping"] = True
            if given.get_driver_name() in {"psycopg", "psycopg2"}:
                limits = {name: n for name, n in _LIBPQ.items() if name not in given.query}
                options["connect_args"] = limits
            self.engine: Engine = create_engine(url, **options)
        except (ArgumentError, ValueError) as error:  # the port is not a number
            raise StoreRefused(
                f"the database {url!r} is not a SQLAlchemy URL; write a URL such as "
                "postgresql+psycopg://user@host/name"
            ) from error
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise StoreRefused(
                f"the database {url} needs a missing driver: {error}; for "
                "PostgreSQL, install psycopg[binary] and write postgresql+psycopg://..."
            ) from error
        if self.is_of_one_machine:
            self._file = _SqliteFile(Path(self.engine.url.database or ""))
            event.listen(self.engine, "do_connect", self._file.connecting)
            event.listen(self.engine, "connect", self._file.connected)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._reading = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        # Since Python 3.13, garbage collection of an open connection causes a warning.
        finalize(self, self.engine.dispose).atexit = False

    @property
    def is_of_one_machine(self) -> bool:
        """Whether the database is SQLite, whose locks work on one machine only."""
        return self.engine.dialect.name == "sqlite"

    def belong_to(self, store_id: str) -> None:
        """Refuse any SQLite file that is not the index of this store."""
        if self._file is not None:
            self._file.store_id = store_id

    def keep_private(self) -> None:
        """Make the file of a SQLite database private; SQLite gives its log file the same mode."""
        if self._file is not None:
            with suppress(OSError):  # SQLite reports the error
                make_private_file(self._file.path)

    def is_missing_file(self) -> bool:
        """Return whether the file of a SQLite database is missing."""
        return self._file is not None and not self._file.path.exists()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a transaction that may write. On SQLite, the write lock is taken at the start.

        Signals are deferred until the transaction ends.

        Raises:
            DatabaseLost: If the database does not answer, or reports another error.
            DiskFull: If the database has no room left.
            ProcessExhausted: If the process has no file handles or memory left.
        """
        with self._connected(self.engine) as connection, connection.begin():
            yield connection

    def transact(self, change: Callable[[Connection], Result]) -> Result:
        """Make a change in a transaction, and repeat the change after an outage.

        The change must be idempotent, because an attempt before the outage may have been committed.
        Raises DatabaseLost if the outage lasts too long.
        """

        def once() -> Result:
            with self.write() as connection:
                return change(connection)

        return retry_while_unreachable(
            once, lambda error: is_outage(error) and self._was_reached, str(self.engine.url)
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection whose statements each see the newest committed state."""
        with self._connected(self._reading) as connection:
            yield connection

    def rows(self, query: Executable) -> Sequence[Row[Any]]:
        """Return the rows of a query, read from the newest committed state."""
        with self.read() as connection:
            return connection.execute(query).all()

    def scalars(self, query: Executable) -> list[Any]:
        """Return the first value of each row of a query."""
        return [row[0] for row in self.rows(query)]

    def scalar(self, query: Executable) -> Any:
        """Return the first value of a query's first row; None if the query has no rows."""
        return next(iter(self.scalars(query)), None)

    @contextmanager
    def _connected(self, engine: Engine) -> Iterator[Connection]:
        """Yield a connection; wait while none is free, or while a once reachable server is down."""

        def is_waited_for(error: BaseException) -> bool:
            return is_outage(error) and (
                self._was_reached or any(text in str(error) for text in _CROWDED)
            )

        def connect() -> Connection:
            if self._file is not None:
                self._file.check_descriptors()
            with self._named():
                return engine.connect()

        with deferred_signals(), self._named():
            try:
                connection = retry_while_unreachable(connect, is_waited_for, str(self.engine.url))
            except DatabaseLost:
                self._was_reached = False
                raise
            self._was_reached = True
            with connection:
                yield connection

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn database errors in the `with` block into errors that name the database."""
        try:
            yield
        except IntegrityError:
            raise
        except (DBAPIError, PoolTimeout, _OtherFile) as error:
            where, cause = f"the database {self.engine.url}", cause_of(error)
            is_away = cause == Cause.AWAY
            if is_away and self._file is not None:
                cause = self._file.probed()
            if cause in (Cause.FULL, Cause.PROCESS):
                raise lost_for(cause, where, error) from error
            if self._file is not None:
                self.engine.dispose()  # files of a network mount stay unreadable after an outage
            lost = DatabaseLost(f"{where}: {getattr(error, 'orig', error)}")
            lost.is_final = is_away and cause is None
            raise lost from error

    def close(self) -> None:
        """Close all connections. The next query opens a new connection."""
        self.engine.dispose()


def in_chunks(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Yield values in lists that are short enough for one SQL statement."""
    for first in range(0, len(values), _KEYS_PER_QUERY):
        yield list(values[first : first + _KEYS_PER_QUERY])


def without_password(url: str) -> str:
    """Return a database URL in which any password that SQLAlchemy or `masked` finds is masked."""
    with suppress(ArgumentError, ValueError):  # the port is not a number
        if make_url(url).password:
            url = make_url(url).render_as_string(hide_password=True)
    return masked(url)


def insert_new(connection: Connection, table: Table, rows: Any, **computed: Any) -> bool:
    """Insert rows, skipping known primary keys; return whether exactly one row was inserted."""
    statement = _new_row(connection.dialect.name, table, **computed)
    counting = {"preserve_rowcount": True}
    return connection.execute(statement, rows, execution_options=counting).rowcount == 1


def upsert(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    """Insert a row with all its columns, or replace the row with the same primary key."""
    connection.execute(_upsert(connection.dialect.name, table), values)


# Statements are built once per table, because building a statement costs more than running it.


@cache
def _new_row(dialect: str, table: Table, **computed: Any) -> Insert:
    statement = import_module(f"sqlalchemy.dialects.{dialect}").insert(table).values(**computed)
    return statement.on_conflict_do_nothing()


@cache
def _upsert(dialect: str, table: Table) -> Insert:
    statement = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)
    names = {column.name for column in table.columns}
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in sorted(names - set(keys))}
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


def _from_json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN or infinity
        with as_written("a document"):
            return json.loads(text)
