"""The index of artifacts: entering, using, evicting and forgetting them, and the totals.

All that changes the cache's total happens under the lock of the store's row, so that the byte
budget holds however many processes write.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Double,
    bindparam,
    case,
    func,
    literal,
    select,
    update,
)
from sqlalchemy.engine import Connection, Row

from prefect_tune.storage.cache.entry import (
    ENTRY_COLUMNS,
    Entry,
    Selection,
    artifact_table,
    entry_of,
)
from prefect_tune.storage.cache.eviction import DEFAULT_POLICY, POLICIES, Policy
from prefect_tune.storage.cache.pins import Pins
from prefect_tune.storage.cache.statistics import Kind, Measured
from prefect_tune.storage.cache.usage import Uses, kind_of
from prefect_tune.storage.database import Database, store_table, upsert
from prefect_tune.storage.journal import Journal
from prefect_tune.storage.key import artifact_folder

__all__ = ["CHEAP", "NO_ROOM", "ArtifactIndex", "Gone", "Totals"]

CHEAP = "cheaper to make again than to read"
NO_ROOM = "everything else is pinned"
"""Reasons to refuse an artifact."""

_STORE = select(store_table).with_for_update()
_BY_KEYS = select(*ENTRY_COLUMNS).where(artifact_table.c.key.in_(bindparam("keys", expanding=True)))

_PLACES = select(
    artifact_table.c.key,
    artifact_table.c.size_bytes,
    artifact_table.c.place,
    artifact_table.c.is_present,
).where(artifact_table.c.key.in_(bindparam("keys", expanding=True)))
_BYTES_PRESENT = select(func.sum(artifact_table.c.size_bytes)).where(
    artifact_table.c.is_present,
    artifact_table.c.key.in_(bindparam("keys", expanding=True)),
)
_ENTERED = update(store_table).values(
    cache_bytes=store_table.c.cache_bytes + bindparam("entered_bytes"),
    count_present=store_table.c.count_present + 1,
)

_ENTRY_FIELDS = tuple(f.name for f in fields(Entry))

_KEYS_PER_QUERY = 1_000
"""Databases limit the number of values in one statement."""

Gone = tuple[str, str]
"""Key and place of a publication whose bytes must be deleted."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the life of a store."""

    policy: str
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

    Args:
        database: Where it is kept.

    Attributes:
        uses: What happened and is not written yet.
        measured: How long steps take, and how often they were served.
        journal: What is being written or deleted.
        pins: What stays for now.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.measured = Measured(database)
        self.journal = Journal(database)
        self.pins = Pins(database)
        self.uses = Uses(self.flush)

    def entries(self, keys: Sequence[str]) -> dict[str, Entry]:
        """What is known of these keys; keys that were never made are left out."""
        found: dict[str, Entry] = {}
        with self._database.read() as connection:
            for first in range(0, len(keys), _KEYS_PER_QUERY):
                some = list(keys[first : first + _KEYS_PER_QUERY])
                rows = connection.execute(_BY_KEYS, {"keys": some})
                found |= {row.key: entry_of(row) for row in rows}
        return found

    def bytes_present(self, keys: Sequence[str]) -> int:
        """Return how many bytes the artifacts of these keys have in the cache."""
        total = 0
        with self._database.read() as connection:
            for first in range(0, len(keys), _KEYS_PER_QUERY):
                some = list(keys[first : first + _KEYS_PER_QUERY])
                total += int(connection.execute(_BYTES_PRESENT, {"keys": some}).scalar() or 0)
        return total

    def select(self, selection: Selection) -> list[Entry]:
        """The entries that are selected, in its order."""
        with self._database.read() as connection:
            return [entry_of(row) for row in connection.execute(selection.query())]

    def keys_of(self, study: str) -> list[str]:
        """Keys of all artifacts that a study was the last to make."""
        query = select(artifact_table.c.key).where(artifact_table.c.study == study)
        with self._database.read() as connection:
            return list(connection.execute(query).scalars())

    def bytes_by_step(self) -> dict[str, int]:
        """Bytes in the cache, by step."""
        table = artifact_table.c
        query = select(table.step, func.sum(table.size_bytes)).where(table.is_present)
        with self._database.read() as connection:
            return {step: int(n) for step, n in connection.execute(query.group_by(table.step))}

    def budget_bytes(self) -> int:
        """The cache's byte budget."""
        with self._database.read() as connection:
            return int(connection.execute(select(store_table.c.budget_bytes)).scalar_one())

    def look_up_to_make(self, connection: Connection, key: str, place: str) -> Entry | None:
        """What is known of a key; when it must be made, its place is noted as being written."""
        row = connection.execute(_BY_KEYS, {"keys": [key]}).first()
        if row is None or not row.is_present:
            self.journal.note(connection, [(artifact_folder(key), place)])
        return None if row is None else entry_of(row)

    def refuse(self, entry: Entry, reason: str) -> None:
        """Note that the bytes of an artifact are not kept, and why; its facts are."""
        with self._changing() as (connection, _):
            self._refuse(connection, entry, reason)

    def admit(
        self, entry: Entry, then: Callable[[Connection], None] | None = None
    ) -> tuple[str, list[Gone]]:
        """Enter a published artifact, making room for it as the policy says.

        While there is room everything is kept. Without it, what is cheaper to make again than to
        read is refused, and what is pinned stays.

        Args:
            entry: The artifact.
            then: What else to do in the transaction that enters it.

        Returns:
            Why it is refused, or nothing; and what must now be deleted.
        """
        with self._changing(uses_first=False) as (connection, store):
            if store.cache_bytes + entry.size_bytes > store.budget_bytes:
                self._write_uses(connection, store)
            is_cheap = self.measured.is_cheap(connection, kind_of(entry))
            gone, freed = self._remove(connection, [entry.key])
            cache_bytes = store.cache_bytes - freed
            surplus = cache_bytes + entry.size_bytes - store.budget_bytes
            reason = ""
            if surplus > 0 and is_cheap:
                reason = CHEAP
            elif surplus > 0:
                victims, found = self._choose(connection, surplus, with_pinned=False)
                if found < surplus:
                    reason = NO_ROOM
                else:
                    gone += self._evict(connection, victims)
            if then is not None:
                then(connection)
            self.journal.end(connection, [entry.place])
            if reason:
                self._refuse(connection, entry, reason)
                self.journal.note(connection, [(artifact_folder(entry.key), entry.place)])
                return reason, [*gone, (entry.key, entry.place)]
            clock = store.clock
            if gone:  # which may have moved it on
                clock = connection.execute(select(store_table.c.clock)).scalar_one()
            policy = POLICIES[store.policy]
            self._enter(
                connection, entry, is_present=True, is_cheap=is_cheap, policy=policy, clock=clock
            )
            connection.execute(_ENTERED, {"entered_bytes": entry.size_bytes})
        return "", gone

    def forget(self, entry: Entry) -> list[Gone]:
        """Note that this publication counts no more; a later one of the key stays.

        Returns:
            What must be deleted.
        """
        with self._changing() as (connection, _):
            gone, _ = self._remove(connection, [entry.key], place=entry.place)
        return gone

    def shrink(self, size_bytes: int) -> list[Gone]:
        """Evict until the cache is this small, pinned artifacts last; what must be deleted."""
        with self._changing() as (connection, store):
            return self._make_room(connection, store.cache_bytes - size_bytes)

    def set_budget(self, budget_bytes: int) -> list[Gone]:
        """Change the cache's budget; returns what must be deleted for it."""
        with self._changing() as (connection, store):
            connection.execute(update(store_table).values(budget_bytes=budget_bytes))
            return self._make_room(connection, store.cache_bytes - budget_bytes)

    def set_policy(self, name: str) -> None:
        """Change the policy of eviction, for what is there too."""
        with self._changing() as (connection, _):
            connection.execute(update(store_table).values(policy=name, clock=0.0))
            zero = literal(0.0, Double)
            priority = POLICIES[name].priority(dict(artifact_table.c), zero)
            connection.execute(update(artifact_table).values(priority=priority))

    def totals(self) -> Totals:
        """The counters, with what this process has not written yet."""
        self.flush()
        by_step = self.measured.by_step().values()
        with self._database.read() as connection:
            row = connection.execute(select(store_table)).one()
        return Totals(
            policy=row.policy,
            budget_bytes=row.budget_bytes,
            cache_bytes=row.cache_bytes,
            count=row.count_present,
            hits=sum(counts["hits"] for counts in by_step),
            misses=sum(counts["misses"] for counts in by_step),
            seconds_saved=sum(counts["seconds_saved"] for counts in by_step),
            evicted=sum(counts["evicted"] for counts in by_step),
            refused=sum(self.measured.refusals().values()),
        )

    def flush(self) -> None:
        """Write the uses and counters collected so far."""
        if not self.uses.is_empty:
            with self._changing():
                pass

    def stop(self) -> None:
        """Flush for the last time."""
        self.uses.stop()

    @contextmanager
    def _changing(self, *, uses_first: bool = True) -> Iterator[tuple[Connection, Row[Any]]]:
        """A transaction in which the store's row is locked from its start.

        Args:
            uses_first: Whether to write the uses so far; only what evicts needs them at once.
        """
        is_written = False
        try:
            with self._database.write() as connection:
                store = connection.execute(_STORE).one()
                if uses_first:
                    self._write_uses(connection, store)
                yield connection, store
            is_written = True
        finally:
            self.uses.settle(is_written=is_written)

    def _write_uses(self, connection: Connection, store: Row[Any]) -> None:
        uses, policy, clock = self.uses.taken(), POLICIES[store.policy], store.clock
        if uses.used:
            table = artifact_table.c
            after = {
                # Another process may have written a later use already.
                "last_used": case(
                    (table.last_used > bindparam("used_at", type_=Double), table.last_used),
                    else_=bindparam("used_at", type_=Double),
                ),
                "hits": table.hits + bindparam("used_times", type_=BigInteger),
                "cost_seconds": table.cost_seconds,
                "size_bytes": table.size_bytes,
            }
            connection.execute(
                update(artifact_table)
                .where(table.key == bindparam("used_key"))
                .values(
                    last_used=after["last_used"],
                    hits=after["hits"],
                    priority=policy.priority(after, literal(clock, Double)),
                ),
                [
                    {"used_key": key, "used_at": at, "used_times": times}
                    for key, (at, times) in uses.used.items()
                ],
            )
        for kind, times in uses.times.items():
            self._note(connection, kind, times)
        for step, counts in uses.counts.items():
            self.measured.note_counts(connection, step, counts)

    def _note(
        self, connection: Connection, kind: Kind, seconds: Mapping[str, Sequence[float]]
    ) -> None:
        """Take times into their averages, which may change the rank of all of that kind."""
        is_cheap, is_news = self.measured.note_times(connection, kind, seconds)
        if is_news:
            table, smallest = artifact_table.c, kind.smallest_bytes
            connection.execute(
                update(artifact_table)
                .where(table.step == kind.step, table.algorithm == kind.algorithm)
                .where(table.size_bytes >= smallest, table.size_bytes < 2 * smallest)
                .values(is_cheap=is_cheap)
            )

    def _make_room(self, connection: Connection, surplus_bytes: int) -> list[Gone]:
        victims, _ = self._choose(connection, surplus_bytes, with_pinned=True)
        return self._evict(connection, victims)

    def _choose(
        self, connection: Connection, surplus_bytes: int, *, with_pinned: bool
    ) -> tuple[list[str], int]:
        """Keys to evict until `surplus_bytes` are free, cheap ones first, and their bytes."""
        table, victims, found = artifact_table.c, [], 0
        is_pinned = table.key.in_(self.pins.keys())
        rounds = [(True, False), (False, False), *([(True, True), (False, True)] * with_pinned)]
        for is_cheap, pinned in rounds:
            if found >= surplus_bytes:
                break
            candidates = connection.execute(
                select(table.key, table.size_bytes)
                .where(table.is_present, table.is_cheap == is_cheap)
                .where(is_pinned if pinned else ~is_pinned)
                .order_by(table.priority, table.key)
                .execution_options(yield_per=500)
            )
            for key, size_bytes in candidates:
                if found >= surplus_bytes:
                    break
                victims.append(key)
                found += size_bytes
            candidates.close()
        return victims, found

    def _evict(self, connection: Connection, keys: list[str]) -> list[Gone]:
        """Forget artifacts to make room; the clock of the cache moves on to their priority."""
        gone, _ = self._remove(connection, keys)
        table, clock = artifact_table.c, store_table.c.clock
        for first in range(0, len(keys), _KEYS_PER_QUERY):
            here = table.key.in_(keys[first : first + _KEYS_PER_QUERY])
            latest = select(func.max(table.priority)).where(here, ~table.is_cheap)
            risen = connection.execute(latest).scalar() or 0.0
            connection.execute(update(store_table).where(clock < risen).values(clock=risen))
            by_step = select(table.step, func.count()).where(here).group_by(table.step)
            for step, n in connection.execute(by_step).all():
                self.measured.note_counts(connection, step, {"evicted": n})
        return gone

    def _remove(
        self, connection: Connection, keys: list[str], place: str | None = None
    ) -> tuple[list[Gone], int]:
        """Mark artifacts as absent and take their bytes off the total; what they were."""
        table, gone, freed = artifact_table.c, [], 0
        for first in range(0, len(keys), _KEYS_PER_QUERY):
            # Only the keys stand in the condition: with more, SQLite walks all that is present.
            some = keys[first : first + _KEYS_PER_QUERY]
            rows = [
                row
                for row in connection.execute(_PLACES, {"keys": some})
                if row.is_present and place in (None, row.place)
            ]
            gone += [(row.key, row.place) for row in rows]
            freed += sum(row.size_bytes for row in rows)
            if rows:
                here = table.key.in_([row.key for row in rows])
                connection.execute(update(artifact_table).where(here).values(is_present=False))
        if gone:
            store = store_table.c
            connection.execute(
                update(store_table).values(
                    cache_bytes=store.cache_bytes - freed,
                    count_present=store.count_present - len(gone),
                )
            )
            self.journal.note(connection, [(artifact_folder(key), place) for key, place in gone])
        return gone, freed

    def _refuse(self, connection: Connection, entry: Entry, reason: str) -> None:
        here = [artifact_table.c.key == entry.key, artifact_table.c.is_present]
        if connection.execute(select(artifact_table.c.key).where(*here)).first() is None:
            nowhere = replace(entry, place="", parts={})
            self._enter(connection, nowhere, is_present=False)
        self.measured.note_refusal(connection, reason)

    def _enter(
        self,
        connection: Connection,
        entry: Entry,
        *,
        is_present: bool,
        is_cheap: bool = False,
        policy: Policy = POLICIES[DEFAULT_POLICY],
        clock: float = 0.0,
    ) -> None:
        """Insert the row of an artifact, or replace it."""
        now = self.uses.now()
        values = {
            **{name: getattr(entry, name) for name in _ENTRY_FIELDS},
            "parts": {name: asdict(part) for name, part in entry.parts.items()},
            "created": entry.created or now,
            "last_used": now,
            "is_present": is_present,
            "is_cheap": is_cheap,
        }
        values["priority"] = policy.priority(values, clock)
        upsert(connection, artifact_table, values)
