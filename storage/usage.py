"""Usage of the cache: hits, misses, seconds saved and bytes read by step, and times of last use.

Each process collects its counts in memory and writes the counts at the end of a trial, so a hit
needs no transaction. A running trial pins its artifacts, so no artifact is evicted only because its
last use has not been written yet.
"""

import threading
from collections.abc import Mapping
from time import time

from sqlalchemy import BigInteger, Double, bindparam, case, func, insert, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import Database
from prefect_tune.storage.schema import artifact_table, step_count_table, store_table

LOCKED_STORE = select(store_table).with_for_update()
"""Query that reads the store's row and locks it until the transaction ends."""

_USED_AT = bindparam("used_at", type_=Double)
_USE = (
    update(artifact_table)
    .where(artifact_table.c.key == bindparam("used_key"))
    .values(
        # Another process may already have written a later use.
        last_used=case(
            (artifact_table.c.last_used > _USED_AT, artifact_table.c.last_used), else_=_USED_AT
        ),
        hits=artifact_table.c.hits + bindparam("used_times", type_=BigInteger),
    )
)
_READS = select(func.sum(step_count_table.c.read_seconds), func.sum(step_count_table.c.read_bytes))


def note_counts(connection: Connection, step: str, counts: Mapping[str, float]) -> None:
    """Add `counts` to the counts of a step, in a transaction that has locked the `store` row."""
    table = step_count_table.c
    more = {name: table[name] + n for name, n in counts.items()}
    change = update(step_count_table).where(table.step == step).values(more)
    if not connection.execute(change).rowcount:
        first = {**dict.fromkeys(table.keys(), 0), **counts, "step": step}
        connection.execute(insert(step_count_table).values(first))


def read_seconds_per_byte(connection: Connection) -> float:
    """Return the mean time to read one byte from the store; 0 before the first read."""
    seconds, n_bytes = connection.execute(_READS).one()
    return float(seconds) / float(n_bytes) if n_bytes else 0.0


class UsageBuffer:
    """Usage counts collected in this process. Threads may share a buffer.

    If the database fails while counts are being written, the counts are lost.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._used: dict[str, tuple[float, int]] = {}
        self._counts: dict[str, dict[str, float]] = {}

    def count_hit(self, key: str, step: str, seconds_saved: float) -> None:
        """Count an artifact that was served from the cache, and the time saved."""
        with self._lock:
            _, hits = self._used.get(key, (0.0, 0))
            self._used[key] = time(), hits + 1
        self._count(step, hits=1, seconds_saved=seconds_saved)

    def count_read(self, step: str, read_bytes: int, seconds: float) -> None:
        """Count the bytes read from an artifact, and the time to read the bytes."""
        self._count(step, read_bytes=read_bytes, read_seconds=seconds, seconds_saved=-seconds)

    def count_miss(self, step: str) -> None:
        """Count an artifact that had to be made."""
        self._count(step, misses=1)

    def _count(self, step: str, **counts: float) -> None:
        with self._lock:
            known = self._counts.setdefault(step, {})
            for name, n in counts.items():
                known[name] = known.get(name, 0) + n

    def write(self, connection: Connection) -> None:
        """Write all collected counts, in a transaction that has locked the `store` row."""
        with self._lock:
            used, self._used = self._used, {}
            counts, self._counts = self._counts, {}
        rows = [{"used_key": k, "used_at": at, "used_times": n} for k, (at, n) in used.items()]
        if rows:
            connection.execute(_USE, rows)
        for step, of_step in counts.items():
            note_counts(connection, step, of_step)

    def flush(self) -> None:
        """Write all collected counts in a new transaction."""
        if self._used or self._counts:
            with self._database.write() as connection:
                connection.execute(LOCKED_STORE)
                self.write(connection)
