"""How long making and reading took, as moving averages, and how often each step was served.

Admission compares the two: what is made again in less time than it is read is not worth a place
that something else could have (DESIGN: eviction and admission).
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Column, Double, Integer, String, Table, insert, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database, metadata

__all__ = ["Measured", "size_class"]

_WEIGHT = 0.2
"""Weight of the newest measurement in a moving average."""

time_table = Table(
    "step_times",
    metadata,
    Column("step", String, primary_key=True),
    Column("algorithm", String, primary_key=True),
    Column("size_class", Integer, primary_key=True),
    Column("make_seconds", Double, nullable=True),
    Column("load_seconds", Double, nullable=True),
)
count_table = Table(
    "step_counts",
    metadata,
    Column("step", String, primary_key=True),
    Column("hits", BigInteger, nullable=False),
    Column("misses", BigInteger, nullable=False),
    Column("seconds_saved", Double, nullable=False),
)
refusal_table = Table(
    "refusals",
    metadata,
    Column("reason", String, primary_key=True),
    Column("times", BigInteger, nullable=False),
)


def size_class(size_bytes: int) -> int:
    """Sizes within a factor of two are of one class."""
    return max(size_bytes, 1).bit_length()


class Measured:
    """The averages and counts of a store, written within the transactions of its index.

    Args:
        database: Where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def note_times(
        self,
        connection: Connection,
        step: str,
        algorithm: str,
        size_bytes: int,
        **seconds: float,
    ) -> None:
        """Take `make_seconds` or `load_seconds` of an artifact into their average."""
        table = time_table.c
        values = {"step": step, "algorithm": algorithm, "size_class": size_class(size_bytes)}
        here = [table[name] == value for name, value in values.items()]
        row = connection.execute(select(time_table).where(*here)).first()
        if row is None:
            connection.execute(insert(time_table).values(**values, **seconds))
            return
        averages = {}
        for name, newest in seconds.items():
            before = getattr(row, name)
            averages[name] = newest if before is None else before + _WEIGHT * (newest - before)
        connection.execute(update(time_table).where(*here).values(averages))

    def is_cheap(self, connection: Connection, step: str, algorithm: str, size_bytes: int) -> bool:
        """Whether artifacts of that kind and size are made in less time than they are read."""
        table = time_table.c
        row = connection.execute(
            select(table.make_seconds, table.load_seconds).where(
                table.step == step,
                table.algorithm == algorithm,
                table.size_class == size_class(size_bytes),
            )
        ).first()
        if row is None or row.make_seconds is None or row.load_seconds is None:
            return False
        return bool(row.make_seconds < row.load_seconds)

    def note_counts(self, connection: Connection, step: str, counts: Mapping[str, float]) -> None:
        """Add to the hits, misses and saved seconds of a step."""
        table = count_table.c
        changed = connection.execute(
            update(count_table)
            .where(table.step == step)
            .values({name: table[name] + n for name, n in counts.items()})
        )
        if not changed.rowcount:
            connection.execute(insert(count_table).values(step=step, **counts))

    def note_refusal(self, connection: Connection, reason: str) -> None:
        """Count an artifact that was not kept."""
        table = refusal_table.c
        changed = connection.execute(
            update(refusal_table).where(table.reason == reason).values(times=table.times + 1)
        )
        if not changed.rowcount:
            connection.execute(insert(refusal_table).values(reason=reason, times=1))

    def refusals(self) -> dict[str, int]:
        """How often artifacts were not kept, by reason."""
        with self._database.read() as connection:
            rows = connection.execute(select(refusal_table).order_by(refusal_table.c.reason))
            return {row.reason: row.times for row in rows}

    def by_step(self) -> dict[str, dict[str, Any]]:
        """Hits, misses and saved seconds by step."""
        with self._database.read() as connection:
            rows = connection.execute(select(count_table).order_by(count_table.c.step))
            return {
                row.step: {
                    "hits": row.hits,
                    "misses": row.misses,
                    "seconds_saved": row.seconds_saved,
                }
                for row in rows
            }
