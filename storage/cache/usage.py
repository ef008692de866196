"""How artifacts are used: counts that are added up, then written to the tables of the index."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import BigInteger, Double, bindparam, case, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.cache.entry import Entry, artifact_table
from prefect_tune.storage.cache.statistics import Kind, note_counts, note_times

__all__ = ["UsageCounts", "kind_of", "write_usage"]


@dataclass(slots=True)
class UsageCounts:
    """How artifacts were used over some time.

    Attributes:
        used: When each artifact was last used, and how often.
        counts: Hits, misses and seconds saved, by step.
        times: Seconds of making and of loading, by kind of artifact.
    """

    used: dict[str, tuple[float, int]] = field(default_factory=dict)
    counts: dict[str, dict[str, float]] = field(default_factory=dict)
    times: dict[Kind, dict[str, list[float]]] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.used or self.counts or self.times)

    def count(self, step: str, name: str, amount: float) -> None:
        """Add to a counter of a step."""
        empty = {"hits": 0, "misses": 0, "seconds_saved": 0.0}
        self.counts.setdefault(step, empty)[name] += amount

    def time(self, entry: Entry, which: str, seconds: float) -> None:
        """Note how long making or loading an artifact of this kind took."""
        self.times.setdefault(kind_of(entry), {}).setdefault(which, []).append(seconds)

    def add(self, other: "UsageCounts") -> None:
        """Add the counts of another time."""
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
    """Return the kind of artifact that times are averaged over."""
    return Kind.of(entry.step, entry.algorithm, entry.size_bytes)


def write_usage(connection: Connection, usage: UsageCounts) -> None:
    """Write counts within a transaction that has locked the store's row."""
    if usage.used:
        _write_uses(connection, usage.used)
    for kind, times in usage.times.items():
        _write_times(connection, kind, times)
    for step, counts in usage.counts.items():
        note_counts(connection, step, counts)


def _write_uses(connection: Connection, used: Mapping[str, tuple[float, int]]) -> None:
    table, used_at = artifact_table.c, bindparam("used_at", type_=Double)
    connection.execute(
        update(artifact_table)
        .where(table.key == bindparam("used_key"))
        .values(
            # Another process may have written a later use already.
            last_used=case((table.last_used > used_at, table.last_used), else_=used_at),
            hits=table.hits + bindparam("used_times", type_=BigInteger),
        ),
        [
            {"used_key": key, "used_at": at, "used_times": times}
            for key, (at, times) in used.items()
        ],
    )


def _write_times(
    connection: Connection, kind: Kind, seconds: Mapping[str, Sequence[float]]
) -> None:
    """Add times to their averages, which may change the rank of all of that kind."""
    is_cheap, is_news = note_times(connection, kind, seconds)
    if is_news:
        table, smallest = artifact_table.c, kind.smallest_bytes
        connection.execute(
            update(artifact_table)
            .where(table.step == kind.step, table.algorithm == kind.algorithm)
            .where(table.size_bytes >= smallest, table.size_bytes < 2 * smallest)
            .values(is_cheap=is_cheap)
        )
