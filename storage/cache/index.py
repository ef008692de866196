"""The index of artifacts: entries, totals, and pins, which keep artifacts for a while."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Select, bindparam, case, delete, func, insert, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.cache.entry import ENTRY_COLUMNS, Entry, Selection, entry_of
from prefect_tune.storage.cache.usage import COUNTS, Statistics, UsageBuffer, write_usage
from prefect_tune.storage.database import Database, epoch, in_chunks
from prefect_tune.storage.journal import Journal, note_publications
from prefect_tune.storage.key import artifact_folder
from prefect_tune.storage.schema import artifact_table, pin_table, store_table


class Pins:
    """Pinned artifacts with owner and expiry. Pins expire, so that dead owners release theirs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(self, keys: Sequence[str], owner: str, seconds: float) -> None:
        """Pin artifacts for some time, and release the owner's other pins."""
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
        """Release all pins of owners with this name prefix."""
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
    """Return a subquery for the keys pinned now."""
    return select(pin_table.c.key).where(pin_table.c.expires >= epoch())


LOCKED_STORE = select(store_table).with_for_update()
"""Query that reads the store's row and locks it until the transaction ends."""
_BY_KEYS = select(*ENTRY_COLUMNS).where(artifact_table.c.key.in_(bindparam("keys", expanding=True)))

_BYTES_PRESENT = select(func.sum(artifact_table.c.size_bytes)).where(
    artifact_table.c.is_present, artifact_table.c.key.in_(bindparam("keys", expanding=True))
)


@dataclass(frozen=True, slots=True)
class CacheTotals:
    """Sums over the life of a store."""

    budget_bytes: int
    cache_bytes: int
    count: int
    hits: int
    misses: int
    seconds_saved: float
    evicted: int
    refused: int


class ArtifactIndex:
    """The table of artifacts, their usage and pins, and the store's counters in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.statistics = Statistics(database)
        self.journal = Journal(database)
        self.pins = Pins(database)
        self.usage = UsageBuffer(self.flush)

    def entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Return the entries of these keys, without keys that were never made."""
        found: dict[str, Entry] = {}
        with self._database.read() as connection:
            for some in in_chunks(keys):
                rows = connection.execute(_BY_KEYS, {"keys": some})
                found |= {row.key: entry_of(row) for row in rows}
        return found

    def bytes_present(self, keys: Iterable[str], study: str) -> int:
        """Return the bytes in the cache for these keys; fast if the study made most of them."""
        table, left, total = artifact_table.c, set(keys), 0
        made = select(table.key, table.size_bytes, table.is_present).where(table.study == study)
        with self._database.read() as connection:
            for key, size_bytes, is_present in connection.execute(made):
                if key in left:
                    left.remove(key)
                    total += size_bytes if is_present else 0
            for some in in_chunks(list(left)):
                total += int(connection.execute(_BYTES_PRESENT, {"keys": some}).scalar() or 0)
        return total

    def made_by(self, study: str) -> list[tuple[str, str, int, int]]:
        """Return (step, present/evicted/refused, number, bytes) for artifacts a study made last."""
        table = artifact_table.c
        where = case(
            (table.is_present, "present"), (table.place == "", "refused"), else_="evicted"
        ).label("whereabouts")
        query = select(table.step, where, func.count(), func.sum(table.size_bytes))
        query = query.where(table.study == study).group_by(table.step, where)
        rows = self._database.rows(query)
        return [(step, at, int(n), int(size)) for step, at, n, size in rows]

    def select(self, selection: Selection) -> list[Entry]:
        """Return the selected entries in the selection's order."""
        return [entry_of(row) for row in self._database.rows(selection.query())]

    def keys_of(self, study: str) -> list[str]:
        """Return the keys of all artifacts last made by a study."""
        query = select(artifact_table.c.key).where(artifact_table.c.study == study)
        return self._database.scalars(query)

    def bytes_by_step(self) -> dict[str, int]:
        """Return the bytes in the cache, by step."""
        table = artifact_table.c
        query = select(table.step, func.sum(table.size_bytes)).where(table.is_present)
        return {step: int(n) for step, n in self._database.rows(query.group_by(table.step))}

    def budget_bytes(self) -> int:
        """Return the cache's byte budget."""
        return int(self._database.scalar(select(store_table.c.budget_bytes)))

    def look_up_to_make(self, connection: Connection, key: str, place: str) -> Entry | None:
        """Return a key's entry; if the artifact must be made, note its place in the journal."""
        row = connection.execute(_BY_KEYS, {"keys": [key]}).first()
        if row is None or not row.is_present:
            note_publications(connection, [(artifact_folder(key), place)])
        return None if row is None else entry_of(row)

    def totals(self) -> CacheTotals:
        """Return the counters, including usage of this process that is not written yet."""
        self.flush()
        by_step = self.statistics.by_step().values()
        (row,) = self._database.rows(select(store_table))
        return CacheTotals(
            budget_bytes=row.budget_bytes,
            cache_bytes=row.cache_bytes,
            count=row.count_present,
            refused=sum(self.statistics.refusals().values()),
            **{name: sum(counts[name] for counts in by_step) for name in COUNTS},
        )

    @contextmanager
    def changing(self) -> Iterator[Connection]:
        """Yield a transaction. If it fails, usage taken from the buffer is collected again."""
        is_written = False
        try:
            with self._database.write() as connection:
                yield connection
            is_written = True
        finally:
            self.usage.settle(is_written=is_written)

    def write_usage(self, connection: Connection) -> None:
        """Write the usage so far, in a transaction of `changing` that has locked the store."""
        write_usage(connection, self.usage.taken())

    def flush(self) -> None:
        """Write the usage collected so far."""
        if not self.usage.is_empty:
            with self.changing() as connection:
                connection.execute(LOCKED_STORE)
                self.write_usage(connection)
