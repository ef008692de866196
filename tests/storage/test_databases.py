"""Databases under many writers, many keys and few connections."""

import gc
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from contracts.store import POSTGRES_IN_FULL, made, put
from hammering import hammer, run_in_threads
from processes import wait_for
from services import Postgres
from sqlalchemy import create_engine, event, func, insert, select, text
from sqlalchemy.pool import NullPool

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.database import Database, epoch
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.schema import (
    artifact_table,
    publication_table,
    record_table,
    record_user_table,
)


@pytest.fixture
def server_address(address, postgres):
    return replace(address, database=postgres.new_database())


@pytest.fixture
def server_store(server_address) -> Iterator[ArtifactStore]:
    opened = ArtifactStore(server_address, memory_bytes=0)
    yield opened
    opened.close()


def check_totals(server_store: ArtifactStore) -> None:
    with server_store.database.read() as connection:
        query = select(func.count(), func.sum(artifact_table.c.size_bytes))
        counted = connection.execute(query.where(artifact_table.c.is_present)).one()
    totals = server_store.index.totals()
    assert (totals.count, totals.size_bytes) == tuple(counted)
    assert totals.size_bytes <= totals.budget_bytes


def test_little_is_done_while_the_row_of_the_store_is_locked(server_store) -> None:
    done: list[str] = []
    engine = server_store.database.engine
    event.listen(engine, "before_cursor_execute", lambda *about: done.append(about[2]))
    event.listen(engine, "commit", lambda _: done.append("COMMIT"))
    put(server_store, "a")
    first = next(i for i, s in enumerate(done) if "FROM store FOR UPDATE" in " ".join(s.split()))
    under_lock = done[first + 1 : done.index("COMMIT", first)]
    assert len(under_lock) == 4  # is it replaced? the total, the journal, and its row


@contextmanager
def side_by_side(
    address: StoreAddress, work: Callable[[int, ArtifactStore], None]
) -> Iterator[None]:
    """Have four threads with stores of their own do something at the same time."""
    others = [ArtifactStore(address, memory_bytes=0) for _ in range(4)]
    run_in_threads(*(partial(work, *pair) for pair in enumerate(others)))
    yield
    for other in others:
        other.close()


def test_the_same_artifact_put_by_many_at_once_counts_once(server_address, server_store) -> None:
    start = Barrier(4)

    def work(_: int, other: ArtifactStore) -> None:
        start.wait()
        for number in range(8):
            assert put(other, f"{number:x}").is_present

    with side_by_side(server_address, work):
        check_totals(server_store)
        assert server_store.index.totals().count == 8


def test_the_budget_holds_when_many_put_at_once(server_address, server_store) -> None:
    server_store.set_budget(5 * put(server_store, "f").size_bytes + 100)  # sizes differ by digits

    def work(place: int, other: ArtifactStore) -> None:
        for number in range(8):
            put(other, f"{place:x}{number:x}")
            assert other.index.totals().size_bytes <= other.index.totals().budget_bytes

    with side_by_side(server_address, work):
        check_totals(server_store)
        assert server_store.index.totals().count == 5


@pytest.mark.slow
def test_a_database_that_nobody_holds_closes_its_connections(tmp_path) -> None:
    database = Database(f"sqlite:///{tmp_path}/index.sqlite")
    with database.read() as connection:
        raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    raw.execute("SELECT 1")
    del database, connection
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        raw.execute("SELECT 1")


SPAWN = multiprocessing.get_context("spawn")

MOST = 24

PROCESSES = 8


@pytest.fixture(scope="module")
def small_server(tmp_path_factory) -> Iterator[Postgres]:
    server = Postgres(tmp_path_factory.mktemp("small"))
    server.limit_connections(MOST)
    yield server
    server.stop()


@pytest.fixture
def small_address(tmp_path: Path, small_server: Postgres) -> StoreAddress:
    return StoreAddress(str(tmp_path / "store"), small_server.new_database())


class Lookout:
    """Sees how many connections others have to a database."""

    def __init__(self, url: str) -> None:
        self.engine = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=NullPool)
        self._connection = self.engine.connect()

    def n_connections(self) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        return self._connection.execute(text(query)).scalar_one() - 1  # its own

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def lookout(small_address: StoreAddress) -> Iterator[Lookout]:
    lookout = Lookout(small_address.database)
    yield lookout
    lookout.close()


@pytest.mark.slow
def test_threads_of_a_process_share_one_connection(small_address, lookout) -> None:
    store = ArtifactStore(small_address, memory_bytes=0)
    store.leases.acquire("study s")  # which another thread renews
    seen = set()

    def work(name: int) -> None:
        for i in range(20):
            put(store, f"{name:x}{i:x}", 10)
            store.get_or_make(put(store, "f", 10), {}, lambda: made(10))
            seen.add(lookout_count())

    lock = threading.Lock()

    def lookout_count() -> int:
        with lock:
            return lookout.n_connections()

    run_in_threads(*(partial(work, name) for name in range(6)))
    assert seen == {1}
    store.close()
    wait_for(lambda: lookout.n_connections() == 0)  # its server's process takes a moment


@pytest.mark.full
@pytest.mark.slow
def test_processes_wait_for_a_connection_when_all_are_taken(
    small_server, small_address, lookout, tmp_path
) -> None:
    store = ArtifactStore(small_address)
    logs = [tmp_path / f"{i}" for i in range(PROCESSES)]
    processes = [
        SPAWN.Process(target=hammer, args=(small_address, i, 1.0, str(log)))
        for i, log in enumerate(logs)
    ]
    with ExitStack() as taken:
        for _ in range(MOST - 4):  # two have one already, and two are left for all
            taken.enter_context(lookout.engine.connect())
        for process in processes:
            process.start()
        wait_for(lambda: "too many clients" in small_server.log())
    for process in processes:
        process.join(200)
    assert [p.exitcode for p in processes] == [0] * PROCESSES
    assert verify(store).is_sound
    store.close()


@pytest.mark.slow
def test_a_host_that_is_gone_without_a_word_is_noticed_within_half_a_minute(small_address) -> None:
    """Linux would wait for a quarter of an hour; a URL may ask for other limits."""
    plain = small_address.database
    asking = f"{plain}{'&' if '?' in plain else '?'}tcp_user_timeout=5000"
    for url, expected in (
        (plain, {"tcp_user_timeout": "30000", "keepalives_idle": "15"}),
        (asking, {"tcp_user_timeout": "5000", "connect_timeout": "10"}),
    ):
        database = Database(url)
        with database.read() as connection:
            parameters = connection.connection.driver_connection.info.get_parameters()
        database.close()
        assert expected.items() <= parameters.items()


MANY = 70_000
"""More than SQLite (32,766 as it comes, 250,000 as some build it) or PostgreSQL (65,535) takes."""

KEYS = [f"{number:064x}" for number in range(MANY)]


@pytest.mark.full
def test_records_of_a_large_study_go_and_other_records_stay(either_store) -> None:
    shared = KEYS[:10]
    part = {"digest": "", "size_bytes": 1, "codec": "json", "signature": ""}
    rows = [
        {"id": key, "size_bytes": 1, "created": 0.0, "parts": {"x": {"file": f"{key}/x", **part}}}
        for key in KEYS
    ]
    with either_store.database.write() as connection:
        connection.execute(insert(record_table), rows)
        used = [(key, "large") for key in KEYS] + [(key, "small") for key in shared]
        connection.execute(
            insert(record_user_table), [{"record": key, "study": study} for key, study in used]
        )
    assert len(either_store.records.release("large")) == MANY - len(shared)
    assert sorted(either_store.records.ids()) == either_store.records.used_by("small") == shared
    assert either_store.index.journal.unfinished() == []


@pytest.mark.full
def test_records_are_linked_and_released_by_name(either_store) -> None:
    either_store.records.link(KEYS, "large")
    assert either_store.records.used_by("large") == KEYS
    assert either_store.records.release("large", KEYS[1:]) == []  # there are none of that name
    assert either_store.records.used_by("large") == KEYS[:1]


@POSTGRES_IN_FULL
@pytest.mark.slow
def test_keys_are_looked_up_pinned_and_released(either_store) -> None:
    assert either_store.index.entries(KEYS) == {}
    assert either_store.index.bytes_present(KEYS, "s") == 0
    either_store.index.pins.set(KEYS, "large", 60)
    either_store.index.pins.set(KEYS[:5], "large", 60, released=KEYS[5:])
    either_store.index.pins.release("large")


@pytest.mark.full
def test_publications_are_finished(either_store) -> None:
    rows = [{"place": key, "folder": "cache", "holder": "{}"} for key in KEYS]
    with either_store.database.write() as connection:
        connection.execute(insert(publication_table).values(started=epoch()), rows)
    either_store.index.journal.finish(KEYS)
    assert either_store.index.journal.unfinished() == []


@pytest.mark.slow
def test_code_that_closes_descriptors_cannot_make_sqlite_write_into_other_files(tmp_path) -> None:
    code = """
import os
import sys
from sqlalchemy import text
from prefect_tune.storage.database import Database
from prefect_tune.storage.waiting import ProcessExhausted

database = Database(f"sqlite:///{sys.argv[1]}/index.sqlite")
with database.write() as connection:
    connection.execute(text("CREATE TABLE numbers (number INTEGER)"))
os.closerange(3, 256)
others = [open(f"{sys.argv[1]}/other-{i}", "w+") for i in range(20)]
try:
    with database.write() as connection:
        connection.execute(text("INSERT INTO numbers VALUES (1)"))
except ProcessExhausted:
    os._exit(7)
"""
    assert subprocess.run([sys.executable, "-c", code, tmp_path], check=False).returncode == 7
    assert not any(path.stat().st_size for path in tmp_path.glob("other-*"))
