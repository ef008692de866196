"""PostgreSQL: admissions by many lock the store's row shortly, and its totals stay true."""

from collections.abc import Iterator
from dataclasses import replace
from threading import Barrier, Thread

import pytest
from contracts.store import put
from sqlalchemy import event, func, select

from prefect_tune.storage import ArtifactStore
from prefect_tune.storage.schema import artifact_table


@pytest.fixture
def address(address, postgres):
    return replace(address, database=postgres.new_database())


@pytest.fixture
def store(address) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(address, memory_bytes=0)
    yield opened
    opened.close()


def check_totals(store: ArtifactStore) -> None:
    with store.database.read() as connection:
        counted = connection.execute(
            select(func.count(), func.sum(artifact_table.c.size_bytes)).where(
                artifact_table.c.is_present
            )
        ).one()
    totals = store.index.totals()
    assert (totals.count, totals.cache_bytes) == tuple(counted)
    assert totals.cache_bytes <= totals.budget_bytes


def test_little_is_done_while_the_row_of_the_store_is_locked(store) -> None:
    done: list[str] = []
    event.listen(
        store.database.engine, "before_cursor_execute", lambda *about: done.append(about[2])
    )
    event.listen(store.database.engine, "commit", lambda _: done.append("COMMIT"))
    put(store, "a")
    first = next(i for i, s in enumerate(done) if s.startswith("UPDATE store"))
    under_lock = done[first + 1 : done.index("COMMIT", first)]
    assert len(under_lock) == 2  # is it replaced? and its row
    assert not any("FOR UPDATE" in s for s in done)


def test_the_same_artifact_put_by_many_at_once_counts_once(address, store) -> None:
    others = [ArtifactStore(address, memory_bytes=0) for _ in range(4)]
    start = Barrier(len(others))

    def work(other: ArtifactStore) -> None:
        start.wait()
        for number in range(8):
            assert put(other, f"{number:x}").is_present

    threads = [Thread(target=work, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    check_totals(store)
    assert store.index.totals().count == 8
    for other in others:
        other.close()


def test_the_budget_holds_when_many_put_at_once(address, store) -> None:
    store.set_budget(5 * put(store, "f").size_bytes + 100)  # sizes differ by some digits
    others = [ArtifactStore(address, memory_bytes=0) for _ in range(4)]

    def work(place: int, other: ArtifactStore) -> None:
        for number in range(8):
            put(other, f"{place:x}{number:x}")
            assert other.index.totals().cache_bytes <= other.index.totals().budget_bytes

    threads = [Thread(target=work, args=pair) for pair in enumerate(others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    check_totals(store)
    assert store.index.totals().count == 5
    for other in others:
        other.close()
