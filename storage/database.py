"""One SQL database for index, ledger and leases: SQLite in WAL mode, or PostgreSQL.

SQLite keeps using a file after it was moved, and creates a missing one. Therefore each use checks
that the file is still at the path, and the database of a known store is never created.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import RLock
from time import monotonic, sleep
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
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql.expression import FunctionElement

from prefect_tune.storage.local_files import make_private_file
from prefect_tune.storage.masking import has_password, masked
from prefect_tune.storage.waiting import (
    Cause,
    ProcessExhausted,
    StoreLost,
    cause_of,
    deferred_signals,
    lost_for,
    through_outage,
)

_PROBE_BYTES = 1 << 16


class SqliteFileGone(RuntimeError):  # noqa: N818 - the name states the event
    """The file is not at its path, or belongs to another store."""


class SqliteFile:
    """The file of a SQLite database, which is the index of `store_id` (empty while unknown)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store_id = ""
        self._identity: tuple[int, int] | None = None
        # No descriptor of the database: closing one would end SQLite's locks.
        self._canary = os.open(os.devnull, os.O_RDONLY)
        self._null = os.fstat(self._canary)
        finalize(self, os.close, self._canary).atexit = False

    def check_descriptors(self) -> None:
        """Raise `ProcessExhausted` if other code has closed the descriptors of this process.

        SQLite would write to any file that has taken the number of its own.
        """
        with suppress(OSError):
            if os.path.samestat(os.fstat(self._canary), self._null):
                return
        raise ProcessExhausted(
            f"code that ran in process {os.getpid()} has closed file descriptors of the store"
        )

    def connecting(
        self, _dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]
    ) -> None:
        """Handle SQLAlchemy's event: open the file of a known store without creating the file."""
        mode = "immutable=1" if self._is_frozen() else "mode=rw"
        if self.store_id or mode == "immutable=1":
            arguments[0] = f"file:{quote(str(self.path.absolute()))}?{mode}"
            options["uri"] = True

    def _is_frozen(self) -> bool:
        """Return whether the folder is read-only and SQLite can make no log for reading in it."""
        log = Path(f"{self.path}-wal")
        is_in_use = log.exists() and log.stat().st_size > 0
        return self.path.exists() and not is_in_use and not os.access(self.path.parent, os.W_OK)

    def connected(self, connection: sqlite3.Connection, _record: Any = None) -> None:
        """Remember the file of a new connection; raises SqliteFileGone for another store's file."""
        if self.store_id:
            try:
                row = connection.execute("SELECT id FROM store").fetchone()
            except sqlite3.OperationalError as error:
                if "no such table" not in str(error):
                    raise
                row = None
            if row is None or row[0] != self.store_id:
                raise SqliteFileGone(f"{self.path} is not the index of the store")
        self._identity = self._found()

    def is_replaced(self) -> bool:
        """Return whether the file was replaced since connecting; SqliteFileGone if it is gone."""
        if self._identity is None:
            return False
        found = self._found()
        if found is None:
            raise SqliteFileGone(f"{self.path} is not there")
        return found != self._identity

    def cause_of(self, error: BaseException) -> Cause | None:
        """Return the cause of an error; SQLite reports several causes by one code."""
        cause = cause_of(error)
        return self._probed() if cause == Cause.AWAY else cause

    def _probed(self) -> Cause:
        """Try to write a file in the same folder; return the cause of the failure, or AWAY."""
        probe = self.path.with_name(f".{uuid4().hex}")
        try:
            try:
                probe.write_bytes(bytes(_PROBE_BYTES))
            finally:
                with suppress(OSError):
                    probe.unlink()
        except OSError as error:
            return cause_of(error) or Cause.AWAY
        return Cause.AWAY

    def _found(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)  # noqa: PTH116 - runs in each transaction; pathlib is slower
        except OSError:
            return None
        return found.st_dev, found.st_ino


BUSY_SECONDS = 60
"""Longest wait for another process's transaction on SQLite."""
_LOG_PAUSE_SECONDS = 0.02
_LIBPQ = {
    "connect_timeout": 10,  # s
    "tcp_user_timeout": 30_000,  # ms
    "keepalives_idle": 15,  # s
    "keepalives_interval": 5,  # s
    "keepalives_count": 3,
}
"""Time limits for a silent host (Linux alone would wait 900 s); a URL may override them."""

_KEYS_PER_QUERY = 1_000
"""Databases limit the number of values in one statement."""

_CROWDED = ("too many clients", "too many connections", "remaining connection slots")
"""PostgreSQL's messages when no connection is left; psycopg gives no code for them."""
_CROWDED_WAY_OUT = "; each process of a study uses one connection: raise max_connections"

Result = TypeVar("Result")
Value = TypeVar("Value")


class epoch(FunctionElement[float]):  # noqa: N801 - used as a SQL function
    """Seconds since 1970 by the database's clock, which all workers share."""

    type = Double()
    inherit_cache = True


@compiles(epoch, "sqlite")
def _epoch_sqlite(*_: Any, **__: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(epoch, "postgresql")
def _epoch_postgresql(*_: Any, **__: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


class DatabaseLost(StoreLost):
    """The database does not answer."""


class DatabaseDamaged(StoreLost):
    """A row differs from what was written; waiting does not help."""

    def __init__(self, what: str, error: Exception, remedy: str = "") -> None:
        why = f"{type(error).__name__}: {error}"
        super().__init__(
            f"{what} is damaged in the database ({why}); restore the database from a backup{remedy}"
        )


@contextmanager
def as_written(what: str, remedy: str = "") -> Iterator[None]:
    """Decode values of a row (`what`) in the body; raises DatabaseDamaged if they are malformed."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise DatabaseDamaged(what, error, remedy) from error


def is_outage(error: BaseException) -> bool:
    """Return whether an error means that the database does not answer now, but may later."""
    cause = error.__cause__ if isinstance(error, DatabaseLost) else error
    is_of_operation = isinstance(
        cause, OperationalError | InterfaceError | InternalError | PoolTimeout | SqliteFileGone
    )
    return is_of_operation and "no such " not in str(cause)  # SQLite's message for another schema


class DatabaseRefused(ValueError):  # noqa: N818 - the name states the event
    """The database cannot be used; the message gives the reason and the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__(masked(message))


class Database:
    """Connections to one database; one instance per process.

    `url` is a SQLAlchemy URL, as text without characters that have a meaning in URLs; `sqlite://`
    is a database in the memory of this process.
    """

    def __init__(self, url: str | URL) -> None:
        self.url = str(url)
        self._was_reached = False
        self._turn: AbstractContextManager[Any] = nullcontext()
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError) as error:  # the port is not a number
            raise DatabaseRefused(
                f"the database {url!r} is not a SQLAlchemy URL; write a URL such as "
                "postgresql+psycopg://user@host/name"
            ) from error
        options: dict[str, Any] = {"json_serializer": _to_json, "json_deserializer": _from_json}
        if parsed.get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": BUSY_SECONDS, "check_same_thread": False}
            if not parsed.database:
                options["poolclass"] = StaticPool
                self._turn = RLock()  # all threads share the connection
        else:
            # A server has about a hundred connections for all processes, so threads share one.
            options |= {"pool_size": 1, "max_overflow": 0, "pool_timeout": BUSY_SECONDS}
            options["pool_pre_ping"] = True
        if parsed.get_driver_name() in {"psycopg", "psycopg2"}:
            options["connect_args"] = {k: v for k, v in _LIBPQ.items() if k not in parsed.query}
        try:
            self.engine: Engine = create_engine(parsed, **options)
        except (NoSuchModuleError, ModuleNotFoundError) as error:
            raise DatabaseRefused(
                f"the database {parsed} needs a missing driver: {error}; for "
                "PostgreSQL, install psycopg[binary] and write postgresql+psycopg://..."
            ) from error
        self._file: SqliteFile | None = None
        if self.engine.dialect.name == "sqlite":
            if parsed.database:
                self._file = SqliteFile(Path(parsed.database))
                event.listen(self.engine, "do_connect", self._file.connecting)
                event.listen(self.engine, "connect", self._file.connected)
            event.listen(self.engine, "connect", _prepare_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._reading = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        # Since Python 3.13, collecting an open connection warns.
        finalize(self, self.engine.dispose).atexit = False

    @property
    def is_of_one_machine(self) -> bool:
        """Whether SQLite's locks restrict the database to processes of one machine."""
        return self.engine.dialect.name == "sqlite"

    def belong_to(self, store_id: str) -> None:
        """From now on, use a SQLite file only if it is the index of this store."""
        if self._file is not None:
            self._file.store_id = store_id

    def keep_private(self) -> None:
        """Make the file of a SQLite database private; SQLite gives its log the same mode."""
        file = self.engine.url.database
        if self.is_of_one_machine and file:
            with suppress(OSError):  # SQLite reports it
                make_private_file(Path(file))

    def is_missing_file(self) -> bool:
        """Return whether the file of a SQLite database is missing."""
        return self._file is not None and not self._file.path.exists()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Yield a transaction that may write; on SQLite it holds the write lock from its start.

        Signals are deferred. Raises DatabaseLost (no answer), DiskFull, StoreForbidden (read-only)
        or ProcessExhausted (no file handles left).
        """
        with (
            deferred_signals(),
            self._turn,
            self._named(),
            self._connected(self.engine) as connection,
            connection.begin(),
        ):
            yield connection

    def transact(self, change: Callable[[Connection], Result]) -> Result:
        """Make an idempotent change in a transaction, and repeat the change after an outage.

        The first attempt may have been committed. Raises DatabaseLost if the outage lasts too long.
        """

        def once() -> Result:
            with self.write() as connection:
                return change(connection)

        return through_outage(
            once, lambda error: is_outage(error) and self._was_reached, str(self.engine.url)
        )

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection whose statements each see the newest committed state."""
        with (
            deferred_signals(),
            self._turn,
            self._named(),
            self._connected(self._reading) as connection,
        ):
            yield connection

    def rows(self, query: Executable) -> Sequence[Row[Any]]:
        """Return the rows of a query, read from the newest committed state."""
        with self.read() as connection:
            return connection.execute(query).all()

    def scalars(self, query: Executable) -> list[Any]:
        """Return the first value of each row of a query."""
        return [row[0] for row in self.rows(query)]

    def scalar(self, query: Executable) -> Any:
        """Return the first value of a query; None if it has no row."""
        return next(iter(self.scalars(query)), None)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except IntegrityError:
            raise
        except DBAPIError as error:
            raise self._lost(error) from error
        except SqliteFileGone as error:
            raise DatabaseLost(f"the database {self.engine.url}: {error}") from error
        except PoolTimeout as error:
            raise DatabaseLost(
                f"the database {self.engine.url}: another thread of this process has held the "
                f"connection for {BUSY_SECONDS} s"
            ) from error

    def _connected(self, engine: Engine) -> Connection:
        """Return a connection; wait for a free one, or for a server that answered before."""

        def is_waited_for(error: BaseException) -> bool:
            return is_outage(error) and (self._was_reached or _is_crowded(error))

        def connect() -> Connection:
            with self._named():
                if self._file is not None:
                    self._file.check_descriptors()
                    if self._file.is_replaced():
                        self.engine.dispose()
                return engine.connect()

        try:
            connection = through_outage(connect, is_waited_for, str(self.engine.url))
        except DatabaseLost:
            self._was_reached = False
            raise
        self._was_reached = True
        return connection

    def _lost(self, error: DBAPIError) -> Exception:
        cause = self._file.cause_of(error) if self._file else cause_of(error)
        where = f"the database {self.engine.url}"
        if cause not in (None, Cause.AWAY):
            return lost_for(cause, where, error)
        if cause == Cause.AWAY and self._file:
            self.engine.dispose()  # after an outage of a network mount, the file stays unreadable
        way_out = _CROWDED_WAY_OUT if _is_crowded(error) else ""
        return DatabaseLost(f"{where}: {error.orig}{way_out}")

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _is_crowded(error: BaseException) -> bool:
    return any(text in str(error) for text in _CROWDED)


def in_chunks(values: Sequence[Value]) -> Iterator[list[Value]]:
    """Yield values in lists short enough for one statement."""
    for first in range(0, len(values), _KEYS_PER_QUERY):
        yield list(values[first : first + _KEYS_PER_QUERY])


def without_password(url: str) -> str:
    """Return a database URL without its password, as the driver would parse it."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the port is not a number
        return masked(url)
    has_one = parsed.password or has_password(url)
    return masked(parsed.render_as_string(hide_password=True)) if has_one else url


def insert_new(connection: Connection, table: Table, rows: Any, **computed: Any) -> bool:
    """Insert rows whose primary key is new; return whether a single row was inserted."""
    statement = _insert_new(connection.dialect.name, table, **computed)
    counting = {"preserve_rowcount": True}
    return connection.execute(statement, rows, execution_options=counting).rowcount == 1


def upsert(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    """Insert a row with all its columns, or replace the row with the same primary key."""
    connection.execute(_upsert(connection.dialect.name, table), values)


# Statements are built once per table: building one costs more than running it.


@cache
def _insert_new(dialect: str, table: Table, **computed: Any) -> Insert:
    statement = _dialect(dialect).insert(table).values(**computed)
    return statement.on_conflict_do_nothing()


@cache
def _upsert(dialect: str, table: Table) -> Insert:
    statement = _dialect(dialect).insert(table)
    names = {column.name for column in table.columns}
    keys = [column.name for column in table.primary_key]
    changed = {name: statement.excluded[name] for name in sorted(names - set(keys))}
    return statement.on_conflict_do_update(index_elements=keys, set_=changed)


def _dialect(name: str) -> Any:
    """Import SQLAlchemy's module for the dialect in use only."""
    return import_module(f"sqlalchemy.dialects.{name}")


def _to_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _from_json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # NaN or infinity
        with as_written("a document"):
            return json.loads(text)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun below
    cursor = connection.cursor()
    _keep_log(cursor)
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.execute("PRAGMA cache_size=-32768")  # 32 MB, enough for a million rows
    cursor.close()


def _keep_log(cursor: Any) -> None:
    """Set the journal mode, with retries: SQLite does not wait here for other processes."""
    until = monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or monotonic() > until:
                raise
            sleep(_LOG_PAUSE_SECONDS)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    if connection.get_execution_options().get("isolation_level") != "AUTOCOMMIT":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
