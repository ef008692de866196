"""Eviction of artifacts, which keeps the total size of the cache within the budget.

Every change of the total size locks the database row of the store, so that all processes together
stay within the budget.
"""

from collections import Counter

from sqlalchemy import bindparam, select, update
from sqlalchemy.engine import Connection

from prefect_tune.storage.database import in_chunks
from prefect_tune.storage.index import Publication, note_publications, pinned_keys
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.schema import artifact_table, store_table
from prefect_tune.storage.usage import note_counts

_PLACES = select(
    artifact_table.c.key,
    artifact_table.c.size_bytes,
    artifact_table.c.place,
    artifact_table.c.is_present,
).where(artifact_table.c.key.in_(bindparam("keys", expanding=True)))
ADD = update(store_table).values(cache_bytes=store_table.c.cache_bytes + bindparam("more_bytes"))
"""Statement that adds `more_bytes` to the cache's total."""


def evict(
    connection: Connection, surplus_bytes: int, *, with_pinned: bool = False
) -> list[Publication] | None:
    """Evict artifacts of at least `surplus_bytes`: cheap ones first, then the least recently used.

    Cheap artifacts are faster to recompute than to read. Pinned artifacts are evicted last, and
    only if `with_pinned` is true. Returns the publications to delete. If evicting all unpinned
    artifacts would free too little, returns None and evicts nothing, unless `with_pinned` is true.
    """
    table, found = artifact_table.c, 0
    victims: list[tuple[str, str]] = []
    is_pinned = table.key.in_(pinned_keys())
    for is_candidate in (~is_pinned, is_pinned) if with_pinned else (~is_pinned,):
        candidates = connection.execute(
            select(table.key, table.step, table.size_bytes)
            .where(table.is_present, is_candidate)
            .order_by(table.is_costly, table.last_used, table.key)
            .execution_options(yield_per=500)
        )
        for key, step, size_bytes in candidates:
            if found >= surplus_bytes:
                break
            victims.append((key, step))
            found += size_bytes
        candidates.close()
    if found < surplus_bytes and not with_pinned:
        return None
    gone, _ = remove(connection, [key for key, _ in victims])
    for step, n in Counter(step for _, step in victims).items():
        note_counts(connection, step, {"evicted": n})
    return gone


def remove(
    connection: Connection, keys: list[str], place: str | None = None
) -> tuple[list[Publication], int]:
    """Mark artifacts as absent, and subtract their bytes from the total size of the cache.

    Runs in the caller's transaction. Returns the publications to delete, which are entered in the
    journal, and their bytes. If `place` is given, only the publication in this folder is removed.
    """
    table, freed = artifact_table.c, 0
    gone: list[Publication] = []
    for some in in_chunks(keys):
        # The query selects by key alone: with a second condition, SQLite scans all artifacts.
        rows = [
            row
            for row in connection.execute(_PLACES, {"keys": some})
            if row.is_present and place in (None, row.place)
        ]
        gone += [(artifact_folder(row.key), row.place) for row in rows]
        freed += sum(row.size_bytes for row in rows)
        if rows:
            here = table.key.in_([row.key for row in rows])
            connection.execute(update(artifact_table).where(here).values(is_present=False))
    if gone:
        connection.execute(ADD, {"more_bytes": -freed})
        note_publications(connection, gone)
    return gone, freed
