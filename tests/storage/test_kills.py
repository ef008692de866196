"""Processes killed during work on leases, artifacts, evictions, copies, upgrades or ledgers."""

import os
import signal
from pathlib import Path
from time import sleep

import numpy as np
import psutil
import pytest
from contracts.store import entry, made, schema_of
from hammering import SPAWN, run_killed, run_together
from processes import wait_for
from sqlalchemy import event, update
from sqlalchemy.engine import Engine

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.host_copies import HostCopies
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.keys import digest
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.processes import ProcessIdentity, process_start
from prefect_tune.storage.records import RecordDamaged
from prefect_tune.storage.schema import SCHEMA, lease_table, metadata

pytestmark = pytest.mark.slow
N_KEYS = 30


def numbered(number: int) -> Made:
    """Return an artifact that contains its number."""
    return Made({"train": canonical(np.full((500, 2), float(number)))}, {"rows": 500}, 0.5)


def hammer(address: StoreAddress, seed: int, n_turns: int, log: str) -> None:
    """Get or make random keys, checking each artifact and the budget.

    Each turn appends an event to a study, and is logged once the event is in the ledger.
    """
    store, chance = ArtifactStore(address, memory_bytes=0), np.random.default_rng(seed)
    ledger = Ledger(store.database)
    ledger.create_study(str(seed), {}, {})
    with Path(log).open("w") as file:
        for turn in range(n_turns):
            number = int(chance.integers(N_KEYS))
            key = entry(f"{number:02x}f")
            kept, _ = store.get_or_make(key, {}, lambda n=number: numbered(n))
            read = store.read(kept, ["train"])
            assert read is None or (read["train"] == number).all(), "a torn read"
            totals = store.index.totals()
            assert totals.size_bytes <= totals.budget_bytes
            ledger.append(str(seed), "ask", {"turn": turn}, {"number": turn, "state": "running"})
            print(turn, file=file, flush=True)
    store.close()


def test_killed_process_damages_nothing_and_the_budget_holds(either_address, tmp_path) -> None:
    store = ArtifactStore(either_address)
    store.set_budget(8 * store.write(entry("a"), numbered(0), {}).size_bytes)
    logs = [tmp_path / f"{seed}" for seed in range(3)]
    victim = SPAWN.Process(target=hammer, args=(either_address, 0, 10**9, str(logs[0])))
    victim.start()
    others = [
        SPAWN.Process(target=hammer, args=(either_address, seed, 40, str(logs[seed])))
        for seed in (1, 2)
    ]
    for other in others:
        other.start()
    wait_for(lambda: all(log.exists() and len(log.read_text()) > 20 for log in logs))
    victim.kill()
    for process in (victim, *others):
        process.join(200)
    assert [other.exitcode for other in others] == [0, 0]
    n_noted = len(logs[0].read_text().splitlines())
    turns = [e.body["turn"] for e in Ledger(store.database).each_event("0")]
    assert turns == list(range(len(turns)))
    assert n_noted <= len(turns) <= n_noted + 1
    assert len(Ledger(store.database).trials("0")) == len(turns)
    assert verify(store).is_sound
    store.sweep()
    assert store.index.journal.unfinished() == []
    assert verify(store).is_sound
    assert len(store.index.select()) == store.index.totals().count <= 8
    store.close()


def hold_for_ever(address: StoreAddress, log: str) -> None:
    """Take the lease of a key and never give it back."""

    def make() -> Made:
        Path(log).touch()
        sleep(3600)
        raise AssertionError

    ArtifactStore(address).get_or_make(entry("a"), {}, make)


def test_lease_lasts_until_the_holder_dies_whatever_the_clock_says(
    either_address, tmp_path
) -> None:
    store, log = ArtifactStore(either_address), tmp_path / "log"
    process = SPAWN.Process(target=hold_for_ever, args=(either_address, str(log)))
    process.start()
    wait_for(log.exists)
    name = f"artifact {entry('a').key}"
    with store.database.write() as connection:
        connection.execute(update(lease_table).values(expires=0.0))
    assert not store.leases.acquire(name)
    me = ProcessIdentity.this_process()
    assert store.leases.holder(name) == me._replace(
        pid=process.pid, started=process_start(process.pid)
    )
    process.kill()  # and nobody has asked yet how it ended
    wait_for(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    assert store.leases.holder(name) is None
    kept, fresh = store.get_or_make(entry("a"), {}, made)  # whoever waits makes it
    assert fresh is not None
    assert kept.is_present
    process.join()
    store.close()


def put_and_die(address: StoreAddress) -> None:
    """Write a record, and be killed just before its folder is moved into place."""
    Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    ArtifactStore(address).records.put("data/x", {"v": canonical(np.arange(9))}, mappable=True)


def test_half_written_record_of_a_killed_process_is_never_read(store) -> None:
    run_killed(put_and_die, store.address)
    assert list(Path(store.files.path("tmp")).rglob("*.arrow"))
    assert not store.records.exists("data/x")
    with pytest.raises(RecordDamaged):
        store.records.get("data/x")
    assert store.sweep() == 1
    assert not list(Path(store.files.root).rglob("*.arrow"))


CONTENT = b"content of a file"


def obtain_together(log: Path, barrier) -> None:
    def download(path: Path) -> None:
        with log.open("a") as file:
            file.write("downloaded\n")
        path.write_bytes(CONTENT)

    barrier.wait(200)
    data, found = HostCopies("store").obtain(digest(CONTENT), download)
    assert (bytes(data), found) == (CONTENT, digest(CONTENT))


def obtain_and_die() -> None:
    def download(path: Path) -> None:
        path.write_bytes(CONTENT[:5])
        os.kill(os.getpid(), signal.SIGKILL)

    HostCopies("store").obtain(digest(CONTENT), download)


def test_single_process_downloads_even_if_a_downloading_process_was_killed(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setenv("HOME", str(tmp_path))  # from which macOS takes it
    run_killed(obtain_and_die)
    assert list(HostCopies("store").folder.glob("*.part"))
    run_together(obtain_together, *[(tmp_path / "log", SPAWN.Barrier(2))] * 2)
    assert (tmp_path / "log").read_text() == "downloaded\n"
    assert not list(HostCopies("store").folder.glob("*.part"))


def open_as_next_version(address: StoreAddress, barrier) -> None:
    from prefect_tune.storage import opening

    opening._UPGRADES[SCHEMA + 1] = lambda op: op.execute("CREATE TABLE planted (id INTEGER)")
    opening.SCHEMA = SCHEMA + 1
    if barrier:
        barrier.wait(200)
    ArtifactStore(address).close()


def upgrade_and_die(address: StoreAddress) -> None:
    """Open a store, and be killed in the middle of its upgrade."""

    def die(*about: object) -> None:
        if "CREATE TABLE planted" in str(about[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "after_cursor_execute", die)
    open_as_next_version(address, None)


def test_killed_upgrade_is_undone_and_repeated_on_the_next_opening(
    either_store,
) -> None:
    run_killed(upgrade_and_die, either_store.address)
    assert schema_of(either_store) == (SCHEMA, set(metadata.tables))
    run_together(open_as_next_version, *[(either_store.address, SPAWN.Barrier(2))] * 2)
    assert schema_of(either_store) == (SCHEMA + 1, {*metadata.tables, "planted"})
