"""What the store holds: one row per artifact that was ever made, and the totals.

A row outlives the bytes of its artifact. Its facts (rows, columns, layout, ...) are what the keys
of later steps are computed from, so evicting an artifact never makes another one unreachable.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import monotonic, time
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    String,
    Table,
    bindparam,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.engine import Connection, Row

from prefect_tune.storage.database import Database, Document, metadata, store_table
from prefect_tune.storage.files import Part

__all__ = ["ArtifactIndex", "Entry", "Gone", "Totals"]

_FLUSH_SECONDS = 1.0
"""Uses are written at most this long after they happened: LRU order is right to within it."""

_KEYS_PER_QUERY = 1_000
"""Databases limit the number of values in one statement."""

artifact_table = Table(
    "artifacts",
    metadata,
    Column("key", String(64), primary_key=True),
    Column("parent", String(64), nullable=True),
    Column("study", String, nullable=False),
    Column("step", String, nullable=False),
    Column("algorithm", String, nullable=False),
    Column("fold", Integer, nullable=False),
    Column("is_present", Boolean, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("cost_seconds", Double, nullable=False),
    Column("created", Double, nullable=False),
    Column("last_used", Double, nullable=False),
    Column("hits", BigInteger, nullable=False, default=0),
    Column("facts", Document, nullable=False),
    Column("parts", Document, nullable=False),
    Column("place", String, nullable=False),
    Index("artifacts_by_use", "is_present", "last_used"),
    Index("artifacts_by_study", "study"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the index knows of an artifact.

    Attributes:
        key: Prefix key.
        parent: Key of the artifact it was made from; None when made from the data set.
        study: The study that made it.
        step: Name of the step.
        algorithm: Id of the step's algorithm.
        fold: Number of the fold.
        is_present: Whether its bytes are in the cache.
        size_bytes: Size of all its parts.
        cost_seconds: Time to make it from its parent.
        created: Seconds since 1970.
        last_used: Seconds since 1970, right to within a second.
        hits: How often it was served.
        facts: What keys of later steps need.
        parts: Its files by name.
        place: The folder of this publication, below that of the key.
    """

    key: str
    parent: str | None
    study: str
    step: str
    algorithm: str
    fold: int
    cost_seconds: float
    facts: Mapping[str, Any]
    is_present: bool = True
    size_bytes: int = 0
    created: float = 0.0
    last_used: float = 0.0
    hits: int = 0
    parts: Mapping[str, Part] = field(default_factory=dict)
    place: str = ""


Gone = tuple[str, str]
"""Key and place of a publication whose bytes must be deleted."""


@dataclass(frozen=True, slots=True)
class Totals:
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
    """The table of artifacts and the store's counters in one database.

    Uses and counters are collected in memory and written together, at the latest with the next
    change, so that a hit costs no transaction of its own.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._used: dict[str, tuple[float, int]] = {}
        self._counts = {"hits": 0, "misses": 0, "seconds_saved": 0.0, "refused": 0}
        self._flushed = monotonic()

    def entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        """What is known of these keys; keys that were never made are left out."""
        found: dict[str, Entry] = {}
        with self._database.read() as connection:
            for first in range(0, len(keys), _KEYS_PER_QUERY):
                some = list(keys[first : first + _KEYS_PER_QUERY])
                query = select(artifact_table).where(artifact_table.c.key.in_(some))
                found |= {row.key: _entry(row) for row in connection.execute(query)}
        return found

    def all_entries(self, *, present_only: bool = True) -> list[Entry]:
        """Every entry, newest first."""
        query = select(artifact_table).order_by(artifact_table.c.created.desc())
        if present_only:
            query = query.where(artifact_table.c.is_present)
        with self._database.read() as connection:
            return [_entry(row) for row in connection.execute(query)]

    def keys_of(self, study: str) -> list[str]:
        """Keys of all artifacts that a study was the last to make."""
        query = select(artifact_table.c.key).where(artifact_table.c.study == study)
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    def count_hit(self, entry: Entry, load_seconds: float = 0.0) -> None:
        """Note that an artifact was served, and what that saved."""
        with self._lock:
            _, hits = self._used.get(entry.key, (0.0, 0))
            self._used[entry.key] = (time(), hits + 1)
            self._counts["hits"] += 1
            self._counts["seconds_saved"] += max(entry.cost_seconds - load_seconds, 0.0)
        self._flush_if_due()

    def count_miss(self) -> None:
        """Note that an artifact had to be made."""
        with self._lock:
            self._counts["misses"] += 1
        self._flush_if_due()

    def budget_bytes(self) -> int:
        """The cache's byte budget."""
        with self._database.read() as connection:
            return int(connection.execute(select(store_table.c.budget_bytes)).scalar_one())

    def refuse(self, entry: Entry) -> None:
        """Note that the bytes of an artifact are not kept; its facts are."""
        with self._database.write() as connection:
            self._write_uses(connection)
            self._enter(connection, entry, is_present=False)
            connection.execute(update(store_table).values(refused=store_table.c.refused + 1))

    def admit(self, entry: Entry) -> tuple[bool, list[Gone]]:
        """Enter a published artifact, making room by forgetting the least recently used.

        Returns:
            Whether it fits, and what must now be deleted. One that is larger than the whole budget
            is refused; its facts are kept.
        """
        with self._database.write() as connection:
            self._write_uses(connection)
            row = connection.execute(select(store_table).with_for_update()).one()
            fits = entry.size_bytes <= row.budget_bytes
            gone, freed = self._remove(connection, [entry.key])
            if fits:
                room = row.budget_bytes - row.cache_bytes + freed - entry.size_bytes
                gone += self._evict(connection, -room)
            self._enter(connection, entry, is_present=fits)
            connection.execute(
                update(store_table).values(
                    cache_bytes=store_table.c.cache_bytes + (entry.size_bytes if fits else 0),
                    refused=store_table.c.refused + (0 if fits else 1),
                )
            )
        return fits, gone

    def forget(self, entry: Entry) -> None:
        """Note that the bytes of this publication are gone; a later one of the key stays."""
        with self._database.write() as connection:
            self._remove(connection, [entry.key], place=entry.place)

    def shrink(self, size_bytes: int) -> list[Gone]:
        """Forget the least recently used until the cache is this small; what must be deleted."""
        with self._database.write() as connection:
            self._write_uses(connection)
            total = connection.execute(select(store_table.c.cache_bytes)).scalar_one()
            return self._evict(connection, total - size_bytes)

    def set_budget(self, budget_bytes: int) -> list[Gone]:
        """Change the cache's budget; returns what must be deleted for it."""
        with self._database.write() as connection:
            self._write_uses(connection)
            connection.execute(update(store_table).values(budget_bytes=budget_bytes))
            total = connection.execute(select(store_table.c.cache_bytes)).scalar_one()
            return self._evict(connection, total - budget_bytes)

    def totals(self) -> Totals:
        """The counters, with what this process has not written yet."""
        self.flush()
        with self._database.read() as connection:
            row = connection.execute(select(store_table)).one()
            count = connection.execute(
                select(func.count()).select_from(artifact_table).where(artifact_table.c.is_present)
            ).scalar_one()
        return Totals(
            budget_bytes=row.budget_bytes,
            cache_bytes=row.cache_bytes,
            count=count,
            hits=row.hits,
            misses=row.misses,
            seconds_saved=row.seconds_saved,
            evicted=row.evicted,
            refused=row.refused,
        )

    def count_refusal(self) -> None:
        """Note that an artifact could not be kept."""
        with self._lock:
            self._counts["refused"] += 1
        self._flush_if_due()

    def flush(self) -> None:
        """Write the uses and counters collected so far."""
        with self._lock:
            is_idle = not self._used and not any(self._counts.values())
        if not is_idle:
            with self._database.write() as connection:
                self._write_uses(connection)

    def _flush_if_due(self) -> None:
        if monotonic() - self._flushed > _FLUSH_SECONDS:
            self.flush()

    def _write_uses(self, connection: Connection) -> None:
        with self._lock:
            used, self._used = self._used, {}
            counts, self._counts = self._counts, dict.fromkeys(self._counts, 0)
            self._flushed = monotonic()
        if used:
            connection.execute(
                update(artifact_table)
                .where(artifact_table.c.key == bindparam("used_key"))
                .values(
                    last_used=bindparam("used_at"),
                    hits=artifact_table.c.hits + bindparam("used_times"),
                ),
                [
                    {"used_key": key, "used_at": at, "used_times": times}
                    for key, (at, times) in used.items()
                ],
            )
        if any(counts.values()):
            connection.execute(
                update(store_table).values({c: store_table.c[c] + n for c, n in counts.items()})
            )

    def _evict(self, connection: Connection, surplus_bytes: int) -> list[Gone]:
        """Forget artifacts in order of their last use until `surplus_bytes` are free."""
        if surplus_bytes <= 0:
            return []
        victims: list[str] = []
        candidates = connection.execute(
            select(artifact_table.c.key, artifact_table.c.size_bytes)
            .where(artifact_table.c.is_present)
            .order_by(artifact_table.c.last_used, artifact_table.c.key)
        )
        for key, size_bytes in candidates:
            if surplus_bytes <= 0:
                break
            victims.append(key)
            surplus_bytes -= size_bytes
        candidates.close()
        gone, _ = self._remove(connection, victims)
        connection.execute(update(store_table).values(evicted=store_table.c.evicted + len(gone)))
        return gone

    def _remove(
        self, connection: Connection, keys: list[str], place: str | None = None
    ) -> tuple[list[Gone], int]:
        """Mark artifacts as absent and take their bytes off the total; what they were."""
        table, gone, freed = artifact_table.c, [], 0
        for key in keys:
            here = [table.key == key, table.is_present]
            if place is not None:
                here.append(table.place == place)
            row = connection.execute(select(table.size_bytes, table.place).where(*here)).first()
            if row is not None:
                gone.append((key, row.place))
                freed += row.size_bytes
                connection.execute(update(artifact_table).where(*here).values(is_present=False))
        if freed:
            connection.execute(
                update(store_table).values(cache_bytes=store_table.c.cache_bytes - freed)
            )
        return gone, freed

    def _enter(self, connection: Connection, entry: Entry, *, is_present: bool) -> None:
        """Insert the row of an artifact, or replace it."""
        values = {**_values(entry), "is_present": is_present}
        here = artifact_table.c.key == entry.key
        if connection.execute(select(artifact_table.c.key).where(here)).first() is None:
            connection.execute(insert(artifact_table).values(values))
        else:
            connection.execute(update(artifact_table).where(here).values(values))


def _values(entry: Entry) -> dict[str, Any]:
    now = time()
    return {
        **{k: v for k, v in asdict(entry).items() if k != "is_present"},
        "created": entry.created or now,
        "last_used": now,
    }


def _entry(row: Row[Any]) -> Entry:
    values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
    values["parts"] = {name: Part(**part) for name, part in values["parts"].items()}
    return Entry(**values)
