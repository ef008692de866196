"""Many processes on one store at the same time; one of them is killed while it makes something."""

import multiprocessing
import os
import signal
from pathlib import Path
from time import sleep

import pytest
from contracts.store import entry
from hammering import hammer, made

from prefect_tune.storage import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.cache.entry import Selection
from prefect_tune.storage.inspection import verify

SPAWN = multiprocessing.get_context("spawn")


def hold_for_ever(address: StoreAddress, log: str) -> None:
    """Take the lease of a key and never give it back."""
    store = ArtifactStore(address)

    def make() -> Made:
        Path(log).write_text("making")
        sleep(600)
        raise AssertionError

    store.get_or_make(entry("a"), {}, make)


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path, postgres) -> StoreAddress:
    database = postgres.new_database() if request.param == "postgresql" else ""
    return StoreAddress(str(tmp_path / "store"), database)


def test_under_load_nothing_is_torn_and_the_budget_holds(address, tmp_path) -> None:
    store = ArtifactStore(address)
    size = store.write(entry("a"), made(0), {}).size_bytes
    store.set_budget(8 * size)
    logs = [tmp_path / f"{i}" for i in range(4)]
    processes = [
        SPAWN.Process(target=hammer, args=(address, i, 2.0, str(log))) for i, log in enumerate(logs)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [p.exitcode for p in processes] == [0] * 4
    made_in_all = sum(int(log.read_text()) for log in logs)
    totals = store.index.totals()
    # Each key is made once per residence: every making but the last few led to an eviction.
    assert made_in_all == totals.misses
    assert made_in_all + 1 == totals.evicted + totals.count + totals.refused
    assert verify(store).is_sound
    assert len(store.index.select(Selection())) == totals.count <= 8
    store.close()


def test_what_a_killed_process_was_making_is_made_by_who_waits(address, tmp_path) -> None:
    log = tmp_path / "log"
    process = SPAWN.Process(target=hold_for_ever, args=(address, str(log)))
    process.start()
    while not log.exists():
        sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    store = ArtifactStore(address)
    kept, fresh = store.get_or_make(entry("a"), {}, lambda: made(1))
    assert fresh is not None
    assert kept.is_present
    assert store.index.totals().misses == 1
    store.close()
