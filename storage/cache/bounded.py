"""The bounded cache: admitting, refusing and evicting artifacts within a byte budget.

Every change of the total locks the store's row, so the budget holds for all processes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.engine import Connection, Row

from prefect_tune.storage.cache.entry import Entry, row_of
from prefect_tune.storage.cache.index import LOCKED_STORE, ArtifactIndex, pinned_keys
from prefect_tune.storage.cache.usage import is_cheap_kind, kind_of, note_counts, note_refusal
from prefect_tune.storage.database import in_chunks, upsert
from prefect_tune.storage.journal import end_publications, note_publications
from prefect_tune.storage.key import artifact_folder
from prefect_tune.storage.schema import artifact_table, store_table

_PLACES = select(
    artifact_table.c.key,
    artifact_table.c.size_bytes,
    artifact_table.c.place,
    artifact_table.c.is_present,
).where(artifact_table.c.key.in_(bindparam("keys", expanding=True)))

Evicted = tuple[str, str]
"""Key and place of a publication to delete."""


def make_room(connection: Connection, surplus_bytes: int) -> list[Evicted]:
    """Evict until `surplus_bytes` are free, pinned artifacts last; return what to delete."""
    victims, _ = choose_victims(connection, surplus_bytes, with_pinned=True)
    return evict(connection, victims)


def choose_victims(
    connection: Connection, surplus_bytes: int, *, with_pinned: bool
) -> tuple[list[str], int]:
    """Return keys to evict for `surplus_bytes`, and their size; cheap, long unused ones first."""
    table, victims, found = artifact_table.c, [], 0
    is_pinned = table.key.in_(pinned_keys())
    rounds = [(True, False), (False, False), *([(True, True), (False, True)] * with_pinned)]
    for is_cheap, pinned in rounds:
        if found >= surplus_bytes:
            break
        candidates = connection.execute(
            select(table.key, table.size_bytes)
            .where(table.is_present, table.is_cheap == is_cheap)
            .where(is_pinned if pinned else ~is_pinned)
            .order_by(table.last_used, table.key)
            .execution_options(yield_per=500)
        )
        for key, size_bytes in candidates:
            if found >= surplus_bytes:
                break
            victims.append(key)
            found += size_bytes
        candidates.close()
    return victims, found


def evict(connection: Connection, keys: list[str]) -> list[Evicted]:
    """Remove artifacts to make room, and count evictions by step."""
    gone, _ = remove(connection, keys)
    table = artifact_table.c
    for some in in_chunks(keys):
        counts = select(table.step, func.count()).where(table.key.in_(some))
        by_step = counts.group_by(table.step)
        for step, n in connection.execute(by_step).all():
            note_counts(connection, step, {"evicted": n})
    return gone


def remove(
    connection: Connection, keys: list[str], place: str | None = None
) -> tuple[list[Evicted], int]:
    """Mark artifacts as absent and subtract their bytes; return publications and bytes."""
    table, gone, freed = artifact_table.c, [], 0
    for some in in_chunks(keys):
        # The condition has only the keys: with more, SQLite scans all present artifacts.
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
        connection.execute(_TOTALS, {"more_bytes": -freed, "more": -len(gone)})
        note_publications(connection, [(artifact_folder(k), p) for k, p in gone])
    return gone, freed


CHEAP = "cheaper to make again than to read"
NO_ROOM = "everything else is pinned"
"""Reasons to refuse an artifact."""

_BYTES = store_table.c.cache_bytes + bindparam("more_bytes")
_COUNT = store_table.c.count_present + bindparam("more")
_TOTALS = update(store_table).values(cache_bytes=_BYTES, count_present=_COUNT)
"""Update of the cache's totals."""
_TOTALS_IF_ROOM = _TOTALS.where(store_table.c.budget_bytes >= _BYTES)
_IS_PRESENT = select(artifact_table.c.is_present).where(artifact_table.c.key == bindparam("of_key"))


class BoundedCache:
    """The artifacts with stored bytes, kept within the store's byte budget."""

    def __init__(self, index: ArtifactIndex) -> None:
        self._index = index

    def refuse(self, entry: Entry, reason: str) -> None:
        """Record an artifact without its bytes, and the reason for refusing them."""
        with self._changing() as (connection, _):
            self._refuse(connection, entry, reason)

    def admit(
        self, entry: Entry, then: Callable[[Connection], None] | None = None
    ) -> tuple[str, list[Evicted]]:
        """Enter a published artifact, evicting others if the cache is full.

        While there is room, everything is admitted. In a full cache, artifacts that are cheaper to
        recompute than to read are refused, and the least recently used unpinned ones are evicted.
        `then` runs in the same transaction. Returns the reason for a refusal, or an empty text, and
        the publications to delete.
        """
        with self._index.changing() as connection:
            if then is not None:
                then(connection)
            end_publications(connection, [entry.place])
            is_cheap = is_cheap_kind(connection, kind_of(entry))
            if self._has_room(connection, entry):
                self._enter(connection, entry, is_present=True, is_cheap=is_cheap)
                return "", []
            return self._admit_under_pressure(connection, entry, is_cheap=is_cheap)

    def _admit_under_pressure(
        self, connection: Connection, entry: Entry, *, is_cheap: bool
    ) -> tuple[str, list[Evicted]]:
        store = connection.execute(LOCKED_STORE).one()
        if store.cache_bytes + entry.size_bytes > store.budget_bytes:
            # Only eviction needs up-to-date last uses.
            self._index.write_usage(connection)
        reason, gone = _room_for(connection, store, entry, is_cheap=is_cheap)
        if reason:
            self._refuse(connection, entry, reason)
            note_publications(connection, [(artifact_folder(entry.key), entry.place)])
            return reason, [*gone, (entry.key, entry.place)]
        connection.execute(_TOTALS, {"more_bytes": entry.size_bytes, "more": 1})
        self._enter(connection, entry, is_present=True, is_cheap=is_cheap)
        return "", gone

    def _has_room(self, connection: Connection, entry: Entry) -> bool:
        """Reserve room if available. Locks the store's row, so the transaction must end soon."""
        room = {"more_bytes": entry.size_bytes, "more": 1}
        if not connection.execute(_TOTALS_IF_ROOM, room).rowcount:
            return False
        if connection.execute(_IS_PRESENT, {"of_key": entry.key}).scalar():
            # The new publication replaces this one, whose bytes become free.
            connection.execute(_TOTALS, {name: -n for name, n in room.items()})
            return False
        return True

    def forget(self, entry: Entry) -> list[Evicted]:
        """Forget this publication of a key, not a later one; return publications to delete."""
        with self._changing() as (connection, _):
            return remove(connection, [entry.key], place=entry.place)[0]

    def shrink(self, size_bytes: int) -> list[Evicted]:
        """Evict down to this size, pinned artifacts last; return publications to delete."""
        with self._changing() as (connection, store):
            return make_room(connection, store.cache_bytes - size_bytes)

    def set_budget(self, budget_bytes: int) -> list[Evicted]:
        """Change the cache's budget; return publications to delete."""
        with self._changing() as (connection, store):
            connection.execute(update(store_table).values(budget_bytes=budget_bytes))
            return make_room(connection, store.cache_bytes - budget_bytes)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Connection, Row[Any]]]:
        """Yield a transaction that has written all usage, and the store's locked row."""
        with self._index.changing() as connection:
            store = connection.execute(LOCKED_STORE).one()
            self._index.write_usage(connection)
            yield connection, store

    def _refuse(self, connection: Connection, entry: Entry, reason: str) -> None:
        here = [artifact_table.c.key == entry.key, artifact_table.c.is_present]
        if connection.execute(select(artifact_table.c.key).where(*here)).first() is None:
            nowhere = replace(entry, place="", parts={})
            self._enter(connection, nowhere, is_present=False)
        note_refusal(connection, reason)

    def _enter(
        self, connection: Connection, entry: Entry, *, is_present: bool, is_cheap: bool = False
    ) -> None:
        now = self._index.usage.now()
        kept = replace(entry, created=entry.created or now, last_used=now, is_present=is_present)
        upsert(connection, artifact_table, {**row_of(kept), "is_cheap": is_cheap})


def _room_for(
    connection: Connection, store: Row[Any], entry: Entry, *, is_cheap: bool
) -> tuple[str, list[Evicted]]:
    """Evict until an artifact fits; return any reason for a refusal, and evicted publications."""
    gone, freed = remove(connection, [entry.key])
    surplus = store.cache_bytes - freed + entry.size_bytes - store.budget_bytes
    if surplus <= 0:
        return "", gone
    if is_cheap:
        return CHEAP, gone
    victims, found = choose_victims(connection, surplus, with_pinned=False)
    if found < surplus:
        return NO_ROOM, gone
    return "", gone + evict(connection, victims)
