"""PostgreSQL has some hundred connections for all: each process has one, and waits to get it."""

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from contracts.store import made, put
from hammering import hammer
from processes import wait_for
from services import Postgres
from sqlalchemy import create_engine, text
from sqlalchemy.pool import NullPool

from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.database import Database
from prefect_tune.storage.inspection import verify

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
def address(tmp_path: Path, small_server: Postgres) -> StoreAddress:
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
def lookout(address: StoreAddress) -> Iterator[Lookout]:
    lookout = Lookout(address.database)
    yield lookout
    lookout.close()


def test_threads_of_a_process_share_one_connection(address, lookout) -> None:
    store = ArtifactStore(address, memory_bytes=0)
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

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {1}
    store.close()
    wait_for(lambda: lookout.n_connections() == 0)  # its server's process takes a moment


def test_processes_wait_for_a_connection_when_all_are_taken(
    small_server, address, lookout, tmp_path
) -> None:
    store = ArtifactStore(address)
    logs = [tmp_path / f"{i}" for i in range(PROCESSES)]
    processes = [
        SPAWN.Process(target=hammer, args=(address, i, 1.0, str(log))) for i, log in enumerate(logs)
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


def test_a_host_that_is_gone_without_a_word_is_noticed_within_half_a_minute(address) -> None:
    """Linux would wait for a quarter of an hour; a URL may ask for other limits."""
    for url, expected in (
        (address.database, {"tcp_user_timeout": "30000", "keepalives_idle": "15"}),
        (
            address.database + _and(address.database) + "tcp_user_timeout=5000",
            {"tcp_user_timeout": "5000", "connect_timeout": "10"},
        ),
    ):
        database = Database(url)
        with database.read() as connection:
            parameters = connection.connection.driver_connection.info.get_parameters()
        database.close()
        assert expected.items() <= parameters.items()


def _and(url: str) -> str:
    return "&" if "?" in url else "?"
