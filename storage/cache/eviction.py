"""Evicting artifacts, in a transaction that has locked the store's row."""

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.cache.entry import artifact_table
from prefect_tune.storage.cache.pins import pinned_keys
from prefect_tune.storage.cache.statistics import note_counts
from prefect_tune.storage.database import in_chunks, store_table
from prefect_tune.storage.journal import note_publications
from prefect_tune.storage.key import artifact_folder

__all__ = ["Evicted", "choose_victims", "evict", "make_room", "remove"]

_PLACES = select(
    artifact_table.c.key,
    artifact_table.c.size_bytes,
    artifact_table.c.place,
    artifact_table.c.is_present,
).where(artifact_table.c.key.in_(bindparam("keys", expanding=True)))

Evicted = tuple[str, str]
"""Key and place of a publication whose bytes must be deleted."""


def make_room(connection: Connection, surplus_bytes: int) -> list[Evicted]:
    """Evict until `surplus_bytes` are free, pinned artifacts last; return what must be deleted."""
    victims, _ = choose_victims(connection, surplus_bytes, with_pinned=True)
    return evict(connection, victims)


def choose_victims(
    connection: Connection, surplus_bytes: int, *, with_pinned: bool
) -> tuple[list[str], int]:
    """Choose keys to evict until `surplus_bytes` are free; return them and their bytes.

    Cheap artifacts go first, then the least recently used.
    """
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
    """Remove artifacts to make room, and count them by step."""
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
    """Mark artifacts as absent and take their bytes off the total; return both."""
    table, gone, freed = artifact_table.c, [], 0
    for some in in_chunks(keys):
        # Only the keys stand in the condition: with more, SQLite walks all that is present.
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
        note_publications(connection, [(artifact_folder(k), p) for k, p in gone])
    return gone, freed
