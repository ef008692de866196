"""Publications being written or deleted, and by whom: what a dead process left can be swept.

A place is noted before its first byte is written, and what is evicted is noted in the transaction
that forgets it. The note goes when the work is done; one that is left over is of a process that
died.
"""

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, epoch, in_chunks
from prefect_tune.storage.lease import Holder
from prefect_tune.storage.schema import publication_table

_LONGEST_SECONDS = 86_400.0
"""After a day, what another machine has not finished counts as abandoned."""


_NOTE = insert(publication_table).values(started=epoch())
_END = delete(publication_table).where(
    publication_table.c.place.in_(bindparam("places", expanding=True))
)

Publication = tuple[str, str]
"""Folder of a key or record, and the place of one publication below it."""


def note_publications(connection: Connection, publications: Sequence[Publication]) -> None:
    """Note, within a transaction, what is about to be written or deleted."""
    holder = Holder.this_process().to_text()
    rows = [{"folder": f, "place": p, "holder": holder} for f, p in publications]
    if rows:
        connection.execute(_NOTE, rows)


def end_publications(connection: Connection, places: Sequence[str]) -> None:
    """Note, within a transaction, that places are written or deleted."""
    for some in in_chunks(places):
        connection.execute(_END, {"places": some})


class Journal:
    """Publications under way.

    Args:
        database: Where they are noted.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, folder: str, place: str) -> None:
        """Note that a place is about to be written to."""
        with self._database.write() as connection:
            note_publications(connection, [(folder, place)])

    def finish(self, places: Sequence[str]) -> None:
        """Note that places are written or deleted, or never will be."""
        if places:
            self._database.transact(lambda connection: end_publications(connection, places))

    def under_way(self) -> list[Publication]:
        """Return all publications under way."""
        query = select(publication_table.c.folder, publication_table.c.place)
        return [(folder, place) for folder, place in self._database.rows(query)]

    def abandoned(self) -> list[Publication]:
        """Return what dead processes left: of this machine, or noted a day ago."""
        table = publication_table.c
        is_old = (table.started < epoch() - _LONGEST_SECONDS).label("is_old")
        rows = self._database.rows(select(table.folder, table.place, table.holder, is_old))
        holders = [(row, Holder.from_text(row.holder)) for row in rows]
        return [
            (row.folder, row.place)
            for row, holder in holders
            if holder.is_dead() or (row.is_old and not holder.is_alive())
        ]
