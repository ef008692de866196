"""Journal of publications being written or deleted, used to sweep up after dead processes.

A place is entered before its first byte is written, or in the transaction that evicts it, and
removed when the work is done.
"""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, epoch, in_chunks
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import publication_table

_LONGEST_SECONDS = 86_400.0
"""Unfinished work of another machine counts as abandoned after a day."""


_NOTE = insert(publication_table).values(started=epoch())
_END = delete(publication_table).where(
    publication_table.c.place.in_(bindparam("places", expanding=True))
)

Publication = tuple[str, str]
"""Folder of a key or record, and the place of a publication below it."""


def note_publications(connection: Connection, publications: Sequence[Publication]) -> None:
    """Enter publications about to be written or deleted, in the caller's transaction."""
    holder = ProcessIdentity.this_process().to_text()
    rows = [{"folder": f, "place": p, "holder": holder} for f, p in publications]
    if rows:
        connection.execute(_NOTE, rows)


def end_publications(connection: Connection, places: Sequence[str]) -> None:
    """Remove finished places, in the caller's transaction."""
    for some in in_chunks(places):
        connection.execute(_END, {"places": some})


class Journal:
    """Publications being written or deleted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, folder: str, place: str) -> None:
        """Enter a place before writing to it."""
        with self._database.write() as connection:
            note_publications(connection, [(folder, place)])

    def finish(self, places: Sequence[str]) -> None:
        """Remove places whose write or deletion is finished or was given up."""
        if places:
            self._database.transact(lambda connection: end_publications(connection, places))

    def under_way(self) -> list[Publication]:
        """Return all unfinished publications."""
        query = select(publication_table.c.folder, publication_table.c.place)
        return [(folder, place) for folder, place in self._database.rows(query)]

    def abandoned(self) -> list[Publication]:
        """Return unfinished publications of dead processes on this machine, or older than a day."""
        table = publication_table.c
        is_old = (table.started < epoch() - _LONGEST_SECONDS).label("is_old")
        rows = self._database.rows(select(table.folder, table.place, table.holder, is_old))
        holders = [(row, ProcessIdentity.from_text(row.holder)) for row in rows]
        return [
            (row.folder, row.place)
            for row, holder in holders
            if holder.is_dead() or (row.is_old and not holder.is_alive())
        ]
