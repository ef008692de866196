"""The index of artifacts: entries, counts, and pins, which keep artifacts for a while."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Select, bindparam, case, delete, func, insert, select
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, epoch, in_chunks
from prefect_tune.storage.entry import COLUMNS, Entry
from prefect_tune.storage.journal import Journal, note_publications
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.schema import artifact_table, pin_table, step_count_table, store_table
from prefect_tune.storage.usage import UsageBuffer


class Pins:
    """Pinned artifacts with owner and expiry. Pins expire, so that dead owners release theirs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(
        self,
        keys: Sequence[str],
        owner: str,
        seconds: float,
        released: Sequence[str] | None = None,
    ) -> None:
        """Pin artifacts for some time; release the owner's other pins, or only `released`."""
        table = pin_table.c

        def change(connection: Connection) -> None:
            if released is None:
                is_over = (table.owner == owner) | (table.expires < epoch())
                connection.execute(delete(pin_table).where(is_over))
            else:
                for some in in_chunks([*keys, *released]):
                    is_meant = (table.owner == owner) & table.key.in_(some)
                    connection.execute(delete(pin_table).where(is_meant))
            if keys:
                rows = [{"key": key, "owner": owner} for key in dict.fromkeys(keys)]
                connection.execute(insert(pin_table).values(expires=epoch() + seconds), rows)

        self._database.transact(change)

    def release(self, owner: str) -> None:
        """Release all pins of an owner."""
        self.set([], owner, 0.0)

    def release_beginning(self, owner: str) -> None:
        """Release all pins of owners with this name prefix."""
        is_meant = pin_table.c.owner.startswith(owner, autoescape=True)
        self._database.transact(lambda c: c.execute(delete(pin_table).where(is_meant)))


def pinned_keys() -> Select[tuple[str]]:
    """Return a subquery for the keys pinned now."""
    return select(pin_table.c.key).where(pin_table.c.expires >= epoch())


_AMONG_KEYS = artifact_table.c.key.in_(bindparam("keys", expanding=True))
_BY_KEYS = select(*COLUMNS).where(_AMONG_KEYS)
_BYTES_PRESENT = select(func.sum(artifact_table.c.size_bytes)).where(
    artifact_table.c.is_present, _AMONG_KEYS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounts:
    """Bytes in the cache, and counts over the life of a store.

    Hits and misses count steps of folds, and `refused` counts artifacts without room.
    """

    size_bytes: int
    hits: int
    misses: int
    seconds_saved: float
    evicted: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTotals(CacheCounts):
    """Counts of all steps together, and by step; `count` is the number of artifacts present."""

    budget_bytes: int
    count: int
    steps: Mapping[str, CacheCounts]


class ArtifactIndex:
    """The table of artifacts, their usage and pins, and the store's counters in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.journal = Journal(database)
        self.pins = Pins(database)
        self.usage = UsageBuffer(database)

    def entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Return the entries of these keys, without keys that were never made."""
        found: dict[str, Entry] = {}
        with self._database.read() as connection:
            for some in in_chunks(keys):
                rows = connection.execute(_BY_KEYS, {"keys": some})
                found |= {row.key: Entry.of_row(row) for row in rows}
        return found

    def select(
        self,
        *,
        step: str | None = None,
        parent: str | None = None,
        beginning: str = "",
        limit: int | None = None,
        present_only: bool = True,
    ) -> list[Entry]:
        """Return entries, newest first, optionally with a step, a parent or a key prefix."""
        table = artifact_table.c
        query = select(*COLUMNS).order_by(table.created.desc(), table.key.desc()).limit(limit)
        if step is not None:
            query = query.where(table.step == step)
        if parent is not None:
            query = query.where(table.parent == parent)
        if beginning:  # keys have hexadecimal digits
            query = query.where(table.key >= beginning, table.key < beginning + "g")
        if present_only:
            query = query.where(table.is_present)
        return [Entry.of_row(row) for row in self._database.rows(query)]

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

    def keys_of(self, study: str) -> list[str]:
        """Return the keys of all artifacts last made by a study."""
        query = select(artifact_table.c.key).where(artifact_table.c.study == study)
        return self._database.scalars(query)

    def budget_bytes(self) -> int:
        """Return the cache's byte budget."""
        return int(self._database.scalar(select(store_table.c.budget_bytes)))

    def read_seconds_per_byte(self) -> float:
        """Return the mean time to read a byte over the life of the store; 0 before any read."""
        table = step_count_table.c
        query = select(func.sum(table.read_seconds), func.sum(table.read_bytes))
        ((seconds, n_bytes),) = self._database.rows(query)
        return float(seconds) / float(n_bytes) if n_bytes else 0.0

    def look_up_to_make(self, connection: Connection, key: str, place: str) -> Entry | None:
        """Return a key's entry; if the artifact must be made, note its place in the journal."""
        row = connection.execute(_BY_KEYS, {"keys": [key]}).first()
        if row is None or not row.is_present:
            note_publications(connection, [(artifact_folder(key), place)])
        return None if row is None else Entry.of_row(row)

    def totals(self) -> CacheTotals:
        """Return the counts, including usage of this process that is not written yet."""
        self.flush()
        table = artifact_table.c
        present = select(table.step, func.sum(table.size_bytes)).where(table.is_present)
        size_of = {s: int(n) for s, n in self._database.rows(present.group_by(table.step))}
        names = [field.name for field in fields(CacheCounts) if field.name != "size_bytes"]
        counted: dict[str, dict[str, Any]] = {
            row.step: {name: getattr(row, name) for name in names}
            for row in self._database.rows(select(step_count_table).order_by("step"))
        }
        (store,) = self._database.rows(select(store_table))
        return CacheTotals(
            size_bytes=store.cache_bytes,
            budget_bytes=store.budget_bytes,
            count=store.count_present,
            **{name: sum(counts[name] for counts in counted.values()) for name in names},
            steps={
                step: CacheCounts(size_bytes=size_of.get(step, 0), **counts)
                for step, counts in counted.items()
            },
        )

    def flush(self) -> None:
        """Write the usage collected so far."""
        self.usage.flush()
