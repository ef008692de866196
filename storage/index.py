"""The index of artifacts: entries, counts, pins, and a journal of unfinished writes.

Pins keep artifacts for a while. The journal serves to clean up after dead processes: a place is
entered before its first byte is written, or in the transaction that evicts it, and removed when the
work is done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import Select, bindparam, case, delete, func, insert, select
from sqlalchemy.engine import Connection, Row

from prefect_tune.storage.database import Database, as_written, epoch, in_chunks
from prefect_tune.storage.files import Part
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import (
    artifact_table,
    pin_table,
    publication_table,
    step_count_table,
    store_table,
)
from prefect_tune.storage.usage import UsageBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An artifact as the index knows it; the first six fields suffice to request one.

    Attributes:
        key, parent: Prefix keys of the artifact and its predecessor (None: the data set).
        study: The study that made it.
        step, algorithm, fold: Name of the step, id of its algorithm, number of the fold.
        cost_seconds: Time to make it from its parent.
        summary: JSON values that keys of later steps need.
        is_present: Whether its bytes are in the cache.
        size_bytes: Size of all files.
        created, last_used, hits: Times in seconds since 1970, and number of uses.
        parts, place: Files by name; their folder below the folder of the key (empty if refused).
    """

    key: str
    parent: str | None
    study: str
    step: str
    algorithm: str
    fold: int
    cost_seconds: float = 0.0
    summary: Mapping[str, Any] = field(default_factory=dict)
    is_present: bool = True
    size_bytes: int = 0
    created: float = 0.0
    last_used: float = 0.0
    hits: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict)
    place: str = ""

    @classmethod
    def of_row(cls, row: Row[Any]) -> "Entry":
        """Return the entry in a row of `COLUMNS`; raises DatabaseDamaged if it is malformed."""
        values = dict(row._mapping)  # noqa: SLF001 - public API of SQLAlchemy
        with as_written(f"artifact {row.key}"):
            values["parts"] = {name: Part(**part) for name, part in values["parts"].items()}
            values["summary"] = dict(values["summary"])
        return cls(**values)

    def to_row(self) -> dict[str, Any]:
        """Return the values of `COLUMNS`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"parts": {name: asdict(part) for name, part in self.parts.items()}}


COLUMNS = tuple(artifact_table.c[f.name] for f in fields(Entry))


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

    def unfinished(self) -> list[Publication]:
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

    def look_up_to_make(self, connection: Connection, key: str, place: str) -> Entry | None:
        """Return a key's entry; if the artifact must be made, note its place in the journal."""
        row = connection.execute(_BY_KEYS, {"keys": [key]}).first()
        if row is None or not row.is_present:
            note_publications(connection, [(artifact_folder(key), place)])
        return None if row is None else Entry.of_row(row)

    def is_present(self, connection: Connection, key: str) -> bool:
        """Return whether the bytes of an artifact are in the cache, within a transaction."""
        row = connection.execute(_BY_KEYS, {"keys": [key]}).first()
        return row is not None and bool(row.is_present)

    def totals(self) -> CacheTotals:
        """Return the counts, including usage of this process that is not written yet."""
        self.usage.flush()
        table = artifact_table.c
        present = select(table.step, func.sum(table.size_bytes), func.count())
        query = present.where(table.is_present).group_by(table.step)
        sizes = {step: (int(size), n) for step, size, n in self._database.rows(query)}
        names = [field.name for field in fields(CacheCounts) if field.name != "size_bytes"]
        counted: dict[str, dict[str, Any]] = {
            row.step: {name: getattr(row, name) for name in names}
            for row in self._database.rows(select(step_count_table).order_by("step"))
        }
        (store,) = self._database.rows(select(store_table))
        return CacheTotals(
            size_bytes=store.cache_bytes,
            budget_bytes=store.budget_bytes,
            count=sum(n for _, n in sizes.values()),
            **{name: sum(counts[name] for counts in counted.values()) for name in names},
            steps={
                step: CacheCounts(size_bytes=sizes.get(step, (0, 0))[0], **counts)
                for step, counts in counted.items()
            },
        )

    def count_hit(self, entry: Entry) -> None:
        """Count a served artifact."""
        self.usage.count_hit(entry.key, entry.step, entry.cost_seconds)
