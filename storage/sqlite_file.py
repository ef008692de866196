"""The file of a SQLite database, recognised after its folder was away.

SQLite keeps using an open file wherever that is moved, and makes an empty database where none is.
So a connection is used only while its file is at the path, and a known store's database is never
made anew.
"""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from prefect_tune.storage.waiting.causes import Cause, cause_of

__all__ = ["SqliteFile", "SqliteFileGone"]

_PROBE_BYTES = 1 << 16


class SqliteFileGone(RuntimeError):  # noqa: N818 - it says what happened
    """The file is not at its path, or belongs to another store."""


class SqliteFile:
    """The file of a SQLite database.

    Args:
        path: Its path.

    Attributes:
        store_id: Id of the store that it is the index of; empty while that is not known.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store_id = ""
        self._identity: tuple[int, int] | None = None

    def connecting(
        self, _dialect: Any, _record: Any, arguments: list[Any], options: dict[str, Any]
    ) -> None:
        """Let SQLAlchemy open the file of a known store, and make none."""
        if self.store_id:
            arguments[0] = f"file:{quote(str(self.path.absolute()))}?mode=rw"
            options["uri"] = True

    def connected(self, connection: sqlite3.Connection, _record: Any = None) -> None:
        """Remember the file of a new connection.

        Raises:
            SqliteFileGone: If it is another store's.
        """
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
        """Return whether another file is at the path than when this process connected.

        Raises:
            SqliteFileGone: If no file is there.
        """
        if self._identity is None:
            return False
        found = self._found()
        if found is None:
            raise SqliteFileGone(f"{self.path} is not there")
        return found != self._identity

    def cause_of(self, error: BaseException) -> Cause | None:
        """Return whose trouble an error is; SQLite has one word for several causes."""
        cause = cause_of(error)
        return self._probed() if cause == Cause.AWAY else cause

    def _probed(self) -> Cause:
        """Return why a file beside it cannot be written: it is away if one can be."""
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
            found = os.stat(self.path)  # noqa: PTH116 - for each transaction, and quicker
        except OSError:
            return None
        return found.st_dev, found.st_ino
