"""What the store holds: one row per artifact that was ever made, and the totals.

A row outlives the bytes of its artifact. Its facts (rows, columns, layout, ...) are what the keys
of later steps are computed from, so evicting an artifact never makes another one unreachable.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
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
    insert,
    select,
    update,
)
from sqlalchemy.engine import Connection, Row

from prefect_tune.storage.database import Database, Document, metadata, store_table
from prefect_tune.storage.files import Part

__all__ = ["ArtifactIndex", "Entry", "Totals"]

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
    Index("artifacts_by_use", "is_present", "last_used"),
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

    def admit(self, entry: Entry) -> tuple[bool, list[str]]:
        """Enter an artifact, making room for it by forgetting the least recently used.

        Returns:
            Whether it fits, and the keys whose bytes must now be deleted. One that is larger than
            the whole budget is refused; its facts are kept.
        """
        with self._database.write() as connection:
            self._write_uses(connection)
            row = connection.execute(select(store_table).with_for_update()).one()
            fits = entry.size_bytes <= row.budget_bytes
            former = self._remove(connection, [entry.key])
            victims: list[str] = []
            if fits:
                room = row.budget_bytes - row.cache_bytes + former - entry.size_bytes
                victims = self._evict(connection, -room)
            connection.execute(
                insert(artifact_table).values(**_values(entry), is_present=fits)
                if not former and not self._is_known(connection, entry.key)
                else update(artifact_table)
                .where(artifact_table.c.key == entry.key)
                .values(**_values(entry), is_present=fits)
            )
            connection.execute(
                update(store_table).values(
                    cache_bytes=store_table.c.cache_bytes + (entry.size_bytes if fits else 0),
                    refused=store_table.c.refused + (0 if fits else 1),
                )
            )
        return fits, victims

    def forget(self, keys: Iterable[str]) -> None:
        """Note that the bytes of these artifacts are gone."""
        with self._database.write() as connection:
            self._remove(connection, list(keys))

    def shrink(self, size_bytes: int) -> list[str]:
        """Forget the least recently used until the cache is this small; returns their keys."""
        with self._database.write() as connection:
            self._write_uses(connection)
            total = connection.execute(select(store_table.c.cache_bytes)).scalar_one()
            return self._evict(connection, total - size_bytes)

    def set_budget(self, budget_bytes: int) -> list[str]:
        """Change the cache's budget; returns the keys that had to go."""
        with self._database.write() as connection:
            connection.execute(update(store_table).values(budget_bytes=budget_bytes))
            total = connection.execute(select(store_table.c.cache_bytes)).scalar_one()
            return self._evict(connection, total - budget_bytes)

    def totals(self) -> Totals:
        """The counters, with what this process has not written yet."""
        self.flush()
        with self._database.read() as connection:
            row = connection.execute(select(store_table)).one()
            count = len(
                connection.execute(
                    select(artifact_table.c.key).where(artifact_table.c.is_present)
                ).all()
            )
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

    def _evict(self, connection: Connection, surplus_bytes: int) -> list[str]:
        """Forget artifacts in order of their last use until `surplus_bytes` are free."""
        victims: list[str] = []
        if surplus_bytes <= 0:
            return victims
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
        self._remove(connection, victims)
        connection.execute(update(store_table).values(evicted=store_table.c.evicted + len(victims)))
        return victims

    def _remove(self, connection: Connection, keys: list[str]) -> int:
        """Mark artifacts as absent and take their bytes off the total; returns those bytes."""
        freed = 0
        for key in keys:
            size_bytes = connection.execute(
                select(artifact_table.c.size_bytes).where(
                    artifact_table.c.key == key, artifact_table.c.is_present
                )
            ).scalar()
            if size_bytes is not None:
                freed += size_bytes
                connection.execute(
                    update(artifact_table)
                    .where(artifact_table.c.key == key)
                    .values(is_present=False)
                )
        if freed:
            connection.execute(
                update(store_table).values(cache_bytes=store_table.c.cache_bytes - freed)
            )
        return freed

    def _is_known(self, connection: Connection, key: str) -> bool:
        query = select(artifact_table.c.key).where(artifact_table.c.key == key)
        return connection.execute(query).first() is not None


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
