"""The index of artifacts: entries, counts, pins, and a journal of writes and deletions.

Pins protect artifacts from eviction for a limited time. The journal lists folders that must be
cleaned up if their process dies. A folder is added to the journal before its first file is written,
or in the transaction that evicts its artifact, and is removed when the write or deletion is
complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from sqlalchemy import Select, bindparam, delete, func, insert, select
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
    """An artifact's entry in the index. The first six fields suffice to request an artifact.

    Attributes:
        key: Prefix key of the artifact.
        parent: Prefix key of the artifact of the previous step; None for the first step.
        study: Study that made the artifact.
        step: Name of the step.
        algorithm: Id of the step's algorithm.
        fold: Number of the cross-validation fold.
        cost_seconds: Time to make the artifact from the previous step's artifact.
        summary: JSON values that become part of the keys of later steps.
        is_present: Whether the artifact is in the cache.
        size_bytes: Total size of the artifact's files.
        created: Time at which the artifact was made, in seconds since 1970.
        last_used: Time of the last use, in seconds since 1970.
        hits: Number of times the artifact was served.
        parts: Descriptions of the artifact's files, by part name.
        place: Name of the folder with the files, inside the folder of the key; empty if the cache
            refused the artifact.
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
        """Return the entry stored in a database row; raises DatabaseDamaged for a malformed row."""
        values = dict(row._mapping)  # noqa: SLF001 - public API of SQLAlchemy
        with as_written(f"artifact {row.key}"):
            values["parts"] = {name: Part(**part) for name, part in values["parts"].items()}
            values["summary"] = dict(values["summary"])
        return cls(**values)

    def to_row(self) -> dict[str, Any]:
        """Return the entry as values of the columns `COLUMNS`."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"parts": {name: asdict(part) for name, part in self.parts.items()}}


COLUMNS = tuple(artifact_table.c[f.name] for f in fields(Entry))


_LONGEST_SECONDS = 86_400.0
"""Time after which an unfinished write or deletion by another machine counts as abandoned."""

_NOTE = insert(publication_table).values(started=epoch())
_END = delete(publication_table).where(
    publication_table.c.place.in_(bindparam("places", expanding=True))
)

Publication = tuple[str, str]
"""Folder of an artifact or record, and name of the publication's folder inside."""


def note_publications(connection: Connection, publications: Sequence[Publication]) -> None:
    """Add publications to the journal, in the caller's transaction, before a write or deletion."""
    holder = ProcessIdentity.this_process().to_text()
    rows = [{"folder": f, "place": p, "holder": holder} for f, p in publications]
    if rows:
        connection.execute(_NOTE, rows)


def end_publications(connection: Connection, places: Sequence[str]) -> None:
    """Remove publications from the journal, in the caller's transaction."""
    for some in in_chunks(places):
        connection.execute(_END, {"places": some})


class Journal:
    """The journal of publications that processes are writing or deleting."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, folder: str, place: str) -> None:
        """Add a publication to the journal before its first file is written."""
        with self._database.write() as connection:
            note_publications(connection, [(folder, place)])

    def finish(self, places: Sequence[str]) -> None:
        """Remove publications whose write or deletion is complete or was given up."""
        if places:
            self._database.transact(lambda connection: end_publications(connection, places))

    def unfinished(self) -> list[Publication]:
        """Return all unfinished publications."""
        query = select(publication_table.c.folder, publication_table.c.place)
        return [(folder, place) for folder, place in self._database.rows(query)]

    def abandoned(self) -> list[Publication]:
        """Return the publications that dead processes left unfinished.

        A process on another machine counts as dead one day after it began the publication.
        """
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
    """Pins of artifacts, each with an owner and an expiry. Pins of dead owners expire."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set(
        self,
        keys: Sequence[str],
        owner: str,
        seconds: float,
        released: Sequence[str] | None = None,
    ) -> None:
        """Pin artifacts for `seconds`; release the owner's other pins, or only `released`."""
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
        """Release all pins of owners whose names begin with `owner`."""
        is_meant = pin_table.c.owner.startswith(owner, autoescape=True)
        self._database.transact(lambda c: c.execute(delete(pin_table).where(is_meant)))


def pinned_keys() -> Select[tuple[str]]:
    """Return a subquery for the keys with a pin that has not expired."""
    return select(pin_table.c.key).where(pin_table.c.expires >= epoch())


_AMONG_KEYS = artifact_table.c.key.in_(bindparam("keys", expanding=True))
_BY_KEYS = select(*COLUMNS).where(_AMONG_KEYS)
_BYTES_PRESENT = select(func.sum(artifact_table.c.size_bytes)).where(
    artifact_table.c.is_present, _AMONG_KEYS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheCounts:
    """Size of the cache in bytes, and counts of its use since the store was created.

    Attributes:
        hits: Number of artifacts served from the cache.
        misses: Number of artifacts that were computed.
        seconds_saved: Time to compute the artifacts that were served, minus the time to read them.
        evicted: Number of artifacts evicted to make room.
        refused: Number of artifacts that the cache did not admit.
    """

    size_bytes: int
    hits: int
    misses: int
    seconds_saved: float
    evicted: int
    refused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTotals(CacheCounts):
    """Counts of the cache in total and by step. `count` is the number of artifacts in the cache."""

    budget_bytes: int
    count: int
    steps: Mapping[str, CacheCounts]


class ArtifactIndex:
    """The index of artifacts in a database, with journal, pins and usage counts."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.journal = Journal(database)
        self.pins = Pins(database)
        self.usage = UsageBuffer(database)

    def entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        """Return the entries of `keys`, skipping keys of artifacts that were never made."""
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
        """Return entries, newest first.

        Args:
            step: Name of the step; None for all steps.
            parent: Key of the previous step's artifact; None for all artifacts.
            beginning: First digits of the keys to select.
            limit: Maximum number of entries to return.
            present_only: Whether to skip artifacts that are not in the cache.
        """
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
        """Return the total size of cached `keys`; fast if `study` made most of the artifacts."""
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

    def keys_of(self, study: str) -> list[str]:
        """Return the keys of all artifacts that were last made by a study."""
        query = select(artifact_table.c.key).where(artifact_table.c.study == study)
        return self._database.scalars(query)

    def look_up_to_make(self, connection: Connection, key: str, place: str) -> Entry | None:
        """Return a key's entry; if the artifact must be made, add `place` to the journal."""
        row = connection.execute(_BY_KEYS, {"keys": [key]}).first()
        if row is None or not row.is_present:
            note_publications(connection, [(artifact_folder(key), place)])
        return None if row is None else Entry.of_row(row)

    def is_present(self, connection: Connection, key: str) -> bool:
        """Return whether an artifact is in the cache, as seen by the caller's transaction."""
        row = connection.execute(_BY_KEYS, {"keys": [key]}).first()
        return row is not None and bool(row.is_present)

    def totals(self) -> CacheTotals:
        """Return all counts, including the usage that this process has collected so far."""
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
        """Count an artifact as served from the cache."""
        self.usage.count_hit(entry.key, entry.step, entry.cost_seconds)
