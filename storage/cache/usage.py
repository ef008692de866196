"""Usage of artifacts: hits, misses and seconds by step, and average times to make and to load.

A buffer per process is written with the next change of the index, or a second later, so a hit needs
no transaction. The cache refuses artifacts that, by average times, are faster to make than to load.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Column, Double, bindparam, case, insert, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.cache.entry import Entry
from prefect_tune.storage.database import Database, upsert
from prefect_tune.storage.notices import warn
from prefect_tune.storage.schema import (
    artifact_table,
    refusal_table,
    step_count_table,
    step_time_table,
)
from prefect_tune.storage.waiting import OWN_THREAD

COUNTS = ("hits", "misses", "seconds_saved", "evicted")
"""Columns of counters by step."""
_WEIGHT = 0.2
"""Weight of the newest measurement in the moving average."""
_CLEARLY = 0.8
"""Artifacts become cheap below this ratio of make time to load time, and stay cheap below 1."""


_OF_KIND = (
    step_time_table.c.step == bindparam("step"),
    step_time_table.c.algorithm == bindparam("algorithm"),
    step_time_table.c.size_class == bindparam("size_class"),
)
_TIMES = select(step_time_table).where(*_OF_KIND)
_IS_CHEAP = select(step_time_table.c.is_cheap).where(*_OF_KIND)


class Kind(NamedTuple):
    """Artifacts of one step and algorithm, with sizes within a factor of two."""

    step: str
    algorithm: str
    size_class: int


def is_cheap_kind(connection: Connection, kind: Kind) -> bool:
    """Return whether artifacts of a kind are made faster than they are read."""
    return bool(connection.execute(_IS_CHEAP, kind._asdict()).scalar())


def note_counts(connection: Connection, step: str, counts: Mapping[str, float]) -> None:
    """Add to the hits, misses, saved seconds or evictions of a step."""
    _add(connection, step_count_table.c.step, step, {**dict.fromkeys(COUNTS, 0), **counts})


def note_refusal(connection: Connection, reason: str) -> None:
    """Count an artifact that was refused."""
    _add(connection, refusal_table.c.reason, reason, {"times": 1})


def _add(connection: Connection, key: Column[str], value: str, counts: Mapping[str, float]) -> None:
    table = key.table
    more = {name: table.c[name] + n for name, n in counts.items()}
    if not connection.execute(update(table).where(key == value).values(more)).rowcount:
        connection.execute(insert(table).values({key: value, **counts}))


class Statistics:
    """Reported counters of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def refusals(self) -> dict[str, int]:
        """Return the number of refused artifacts by reason."""
        rows = self._database.rows(select(refusal_table).order_by(refusal_table.c.reason))
        return {row.reason: row.times for row in rows}

    def by_step(self) -> dict[str, dict[str, Any]]:
        """Return hits, misses, saved seconds and evictions by step."""
        rows = self._database.rows(select(step_count_table).order_by(step_count_table.c.step))
        return {row.step: {name: getattr(row, name) for name in COUNTS} for row in rows}


@dataclass(slots=True)
class UsageCounts:
    """Last uses by key, counts by step, and seconds to make and load by kind, over a period."""

    used: dict[str, tuple[float, int]] = field(default_factory=dict)
    counts: dict[str, defaultdict[str, float]] = field(default_factory=dict)
    times: dict[Kind, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be written."""
        return not (self.used or self.counts or self.times)

    def count(self, step: str, name: str, amount: float) -> None:
        """Add to a counter of a step."""
        self.counts.setdefault(step, defaultdict(float))[name] += amount

    def time(self, entry: Entry, which: str, seconds: float) -> None:
        """Add a measured time to make or load an artifact of this kind."""
        self.times.setdefault(kind_of(entry), {}).setdefault(which, []).append(seconds)

    def add(self, other: "UsageCounts") -> None:
        """Add the counts of another period."""
        for key, (at, hits) in other.used.items():
            latest, known = self.used.get(key, (0.0, 0))
            self.used[key] = (max(at, latest), hits + known)
        for step, counts in other.counts.items():
            for name, amount in counts.items():
                self.count(step, name, amount)
        for kind, times in other.times.items():
            for which, seconds in times.items():
                self.times.setdefault(kind, {}).setdefault(which, []).extend(seconds)


def kind_of(entry: Entry) -> Kind:
    """Return the kind of artifact over which times are averaged."""
    return Kind(entry.step, entry.algorithm, max(entry.size_bytes, 1).bit_length())


def write_usage(connection: Connection, usage: UsageCounts) -> None:
    """Write counts in a transaction that has locked the store's row."""
    if usage.used:
        _write_uses(connection, usage.used)
    for kind, times in usage.times.items():
        _write_times(connection, kind, times)
    for step, counts in usage.counts.items():
        note_counts(connection, step, counts)


def _write_uses(connection: Connection, used: Mapping[str, tuple[float, int]]) -> None:
    table, used_at = artifact_table.c, bindparam("used_at", type_=Double)
    rows = [{"used_key": k, "used_at": at, "used_times": n} for k, (at, n) in used.items()]
    # Another process may have written a later use.
    latest = case((table.last_used > used_at, table.last_used), else_=used_at)
    hits = table.hits + bindparam("used_times", type_=BigInteger)
    statement = update(artifact_table).where(table.key == bindparam("used_key"))
    connection.execute(statement.values(last_used=latest, hits=hits), rows)


def _write_times(
    connection: Connection, kind: Kind, seconds: Mapping[str, Sequence[float]]
) -> None:
    """Update the averages of `make_seconds` or `load_seconds`, and whether the kind is cheap."""
    row = connection.execute(_TIMES, kind._asdict()).first()
    averages: dict[str, float | None] = {
        name: getattr(row, name, None) for name in ("make_seconds", "load_seconds")
    }
    for name, measured in seconds.items():
        for newest in measured:
            before = averages[name]
            averages[name] = newest if before is None else before + _WEIGHT * (newest - before)
    make, load = averages.values()
    was_cheap = bool(row and row.is_cheap)
    share = 1.0 if was_cheap else _CLEARLY
    is_cheap = make is not None and load is not None and make < share * load
    upsert(connection, step_time_table, {**kind._asdict(), **averages, "is_cheap": is_cheap})
    if is_cheap != was_cheap:
        table, smallest = artifact_table.c, 1 << (kind.size_class - 1)
        is_kind = (table.step == kind.step) & (table.algorithm == kind.algorithm)
        is_size = (table.size_bytes >= smallest) & (table.size_bytes < 2 * smallest)
        change = update(artifact_table).where(is_kind, is_size).values(is_cheap=is_cheap)
        connection.execute(change)


_FLUSH_SECONDS = 1.0
"""Longest delay before uses are written, and so the precision of the LRU order."""


class UsageBuffer:
    """Counts artifact use in this process, from any thread, until `flush` writes the counts."""

    def __init__(self, flush: Callable[[], None]) -> None:
        self._flush = flush
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._collected = UsageCounts()
        self._flushed = monotonic()
        self._latest = 0.0
        self._writing = threading.local()
        self._timer: threading.Timer | None = None

    def count_hit(self, entry: Entry) -> None:
        """Count a served artifact and the seconds it saved."""
        with self._lock:
            _, hits = self._collected.used.get(entry.key, (0.0, 0))
            self._collected.used[entry.key] = (self.now(), hits + 1)
            self._collected.count(entry.step, "hits", 1)
            self._collected.count(entry.step, "seconds_saved", entry.cost_seconds)
        self._flush_soon()

    def count_load(self, entry: Entry, read_bytes: int, seconds: float) -> None:
        """Count the seconds spent on reading a part of an artifact."""
        whole = seconds * entry.size_bytes / max(read_bytes, 1)
        with self._lock:
            self._collected.time(entry, "load_seconds", whole)
            self._collected.count(entry.step, "seconds_saved", -seconds)
        self._flush_soon()

    def count_miss(self, step: str) -> None:
        """Count an artifact that had to be made."""
        with self._lock:
            self._collected.count(step, "misses", 1)
        self._flush_soon()

    def count_make(self, entry: Entry) -> None:
        """Count the seconds spent making an artifact of this size."""
        with self._lock:
            self._collected.time(entry, "make_seconds", entry.cost_seconds)
        self._flush_soon()

    def now(self) -> float:
        """Return a time later than any before, even if the clock was set back."""
        self._latest = max(time(), self._latest + 1e-6)
        return self._latest

    @property
    def is_empty(self) -> bool:
        """Whether nothing has to be written."""
        with self._lock:
            return self._collected.is_empty

    def taken(self) -> UsageCounts:
        """Return the usage so far, for this thread to write and then `settle`."""
        with self._lock:
            collected, self._collected = self._collected, UsageCounts()
            self._flushed = monotonic()
        self._writing.collected = collected
        return collected

    def settle(self, *, is_written: bool) -> None:
        """Drop the usage this thread took, or collect it again if writing failed."""
        collected: UsageCounts | None = getattr(self._writing, "collected", None)
        self._writing.collected = None
        if collected is not None and not is_written:
            with self._lock:
                self._collected.add(collected)

    def stop(self) -> None:
        """Flush for the last time. After the return, no other thread writes."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
        self._flush_quietly()

    def _flush_soon(self) -> None:
        """Flush within a second, even if this process turns to other work."""
        if monotonic() - self._flushed > _FLUSH_SECONDS:
            self._flush_quietly()
            return
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(_FLUSH_SECONDS, self._flush_quietly)
                self._timer.daemon, self._timer.name = True, f"{OWN_THREAD}: usage"
                self._timer.start()

    def _flush_quietly(self) -> None:
        with self._lock:
            self._timer = None  # later counts start a new timer
        with self._flushing:
            try:
                self._flush()
            except Exception as error:  # a failed count must not fail the work
                warn("usage", f"uses of the cache are not counted: {error}")
