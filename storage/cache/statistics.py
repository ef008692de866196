"""How long making and reading took, as moving averages, and how often each step was served.

Admission compares the two: what is made again in less time than it is read is not worth the
room that something else could have.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    String,
    Table,
    bindparam,
    insert,
    select,
    update,
)
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, metadata, upsert

__all__ = ["Kind", "Statistics", "is_cheap_kind", "note_counts", "note_refusal", "note_times"]

_WEIGHT = 0.2
"""Weight of the newest measurement in a moving average."""
_CLEARLY = 0.8
"""Artifacts made in less than this share of their load time become cheap, and stay so up to 1."""

time_table = Table(
    "step_times",
    metadata,
    Column("step", String, primary_key=True),
    Column("algorithm", String, primary_key=True),
    Column("size_class", Integer, primary_key=True),
    Column("make_seconds", Double, nullable=True),
    Column("load_seconds", Double, nullable=True),
    Column("is_cheap", Boolean, nullable=False, default=False),
)
count_table = Table(
    "step_counts",
    metadata,
    Column("step", String, primary_key=True),
    Column("hits", BigInteger, nullable=False),
    Column("misses", BigInteger, nullable=False),
    Column("seconds_saved", Double, nullable=False),
    Column("evicted", BigInteger, nullable=False),
)
refusal_table = Table(
    "refusals",
    metadata,
    Column("reason", String, primary_key=True),
    Column("times", BigInteger, nullable=False),
)


_OF_KIND = (
    time_table.c.step == bindparam("step"),
    time_table.c.algorithm == bindparam("algorithm"),
    time_table.c.size_class == bindparam("size_class"),
)
_TIMES = select(time_table).where(*_OF_KIND)
_IS_CHEAP = select(time_table.c.is_cheap).where(*_OF_KIND)


class Kind(NamedTuple):
    """Artifacts of one step and algorithm, and of sizes within a factor of two."""

    step: str
    algorithm: str
    size_class: int

    @classmethod
    def of(cls, step: str, algorithm: str, size_bytes: int) -> "Kind":
        """Return the kind of an artifact."""
        return cls(step, algorithm, max(size_bytes, 1).bit_length())

    @property
    def smallest_bytes(self) -> int:
        """The smallest size; the largest is one less than twice that."""
        return 1 << (self.size_class - 1)


def note_times(
    connection: Connection, kind: Kind, seconds: Mapping[str, Sequence[float]]
) -> tuple[bool, bool]:
    """Take `make_seconds` or `load_seconds` of artifacts of a kind into their averages.

    Returns:
        Whether artifacts of that kind are made in less time than they are read, and whether
        that is news.
    """
    row = connection.execute(_TIMES, kind._asdict()).first()
    averages: dict[str, float | None] = {
        "make_seconds": row.make_seconds if row else None,
        "load_seconds": row.load_seconds if row else None,
    }
    for name, measured in seconds.items():
        for newest in measured:
            before = averages[name]
            averages[name] = newest if before is None else before + _WEIGHT * (newest - before)
    make, load = averages["make_seconds"], averages["load_seconds"]
    was_cheap = bool(row and row.is_cheap)
    share = 1.0 if was_cheap else _CLEARLY
    is_cheap = make is not None and load is not None and make < share * load
    upsert(connection, time_table, {**kind._asdict(), **averages, "is_cheap": is_cheap})
    return is_cheap, is_cheap != was_cheap


def is_cheap_kind(connection: Connection, kind: Kind) -> bool:
    """Return whether artifacts of that kind are made in less time than they are read."""
    return bool(connection.execute(_IS_CHEAP, kind._asdict()).scalar())


def note_counts(connection: Connection, step: str, counts: Mapping[str, float]) -> None:
    """Add to the hits, misses, saved seconds or evictions of a step."""
    table = count_table.c
    changed = connection.execute(
        update(count_table)
        .where(table.step == step)
        .values({name: table[name] + n for name, n in counts.items()})
    )
    if not changed.rowcount:
        nothing = dict.fromkeys(("hits", "misses", "seconds_saved", "evicted"), 0)
        connection.execute(insert(count_table).values(step=step, **{**nothing, **counts}))


def note_refusal(connection: Connection, reason: str) -> None:
    """Count an artifact that was not kept."""
    table = refusal_table.c
    changed = connection.execute(
        update(refusal_table).where(table.reason == reason).values(times=table.times + 1)
    )
    if not changed.rowcount:
        connection.execute(insert(refusal_table).values(reason=reason, times=1))


class Statistics:
    """The counts of a store, for people.

    Args:
        database: Where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def refusals(self) -> dict[str, int]:
        """Return how often artifacts were not kept, by reason."""
        with self._database.read() as connection:
            rows = connection.execute(select(refusal_table).order_by(refusal_table.c.reason))
            return {row.reason: row.times for row in rows}

    def by_step(self) -> dict[str, dict[str, Any]]:
        """Return hits, misses, saved seconds and evictions by step."""
        with self._database.read() as connection:
            rows = connection.execute(select(count_table).order_by(count_table.c.step))
            return {
                row.step: {
                    "hits": row.hits,
                    "misses": row.misses,
                    "seconds_saved": row.seconds_saved,
                    "evicted": row.evicted,
                }
                for row in rows
            }
