"""Pins: artifacts that stay in the cache for now, because a trial or an incumbent uses them."""

from collections.abc import Sequence

from sqlalchemy import Select, delete, insert, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, epoch, in_chunks
from prefect_tune.storage.schema import pin_table


class Pins:
    """Who pins what, and until when: pins expire, or the dead would hold them for ever.

    Args:
        database: Where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(self, keys: Sequence[str], owner: str, seconds: float) -> None:
        """Pin artifacts for some time, instead of those that the owner pinned before."""
        is_over = (pin_table.c.owner == owner) | (pin_table.c.expires < epoch())

        def change(connection: Connection) -> None:
            connection.execute(delete(pin_table).where(is_over))
            self._insert(connection, keys, owner, seconds)

        self._database.transact(change)

    def change(
        self, keys: Sequence[str], released: Sequence[str], owner: str, seconds: float
    ) -> None:
        """Pin artifacts for some time and release others; the owner's other pins stay."""
        table = pin_table.c

        def change(connection: Connection) -> None:
            for some in in_chunks([*keys, *released]):
                is_meant = (table.owner == owner) & table.key.in_(some)
                connection.execute(delete(pin_table).where(is_meant))
            self._insert(connection, keys, owner, seconds)

        self._database.transact(change)

    def release(self, owner: str) -> None:
        """Release all pins of an owner."""
        self.set([], owner, 0.0)

    def release_beginning(self, owner: str) -> None:
        """Release all pins of owners whose name begins so."""
        is_meant = pin_table.c.owner.startswith(owner, autoescape=True)
        self._database.transact(lambda c: c.execute(delete(pin_table).where(is_meant)))

    @staticmethod
    def _insert(connection: Connection, keys: Sequence[str], owner: str, seconds: float) -> None:
        if keys:
            connection.execute(
                insert(pin_table).values(expires=epoch() + seconds),
                [{"key": key, "owner": owner} for key in dict.fromkeys(keys)],
            )


def pinned_keys() -> Select[tuple[str]]:
    """Return the keys that are pinned now, as a part of a statement."""
    return select(pin_table.c.key).where(pin_table.c.expires >= epoch())
