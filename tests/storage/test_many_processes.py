"""A store under many processes, against a model, and in a process that only looks."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from contracts.store import POSTGRES_IN_FULL, entry, present
from hammering import hammer, made, run_together
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefect_tune.storage.artifacts import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.matrices import canonical

SPAWN = multiprocessing.get_context("spawn")


def hold_for_ever(either_address: StoreAddress, log: str) -> None:
    """Take the lease of a key and never give it back."""
    store = ArtifactStore(either_address)

    def make() -> Made:
        Path(log).write_text("making")
        sleep(600)
        raise AssertionError

    store.get_or_make(entry("a"), {}, make)


@POSTGRES_IN_FULL
@pytest.mark.slow
def test_under_load_nothing_is_torn_and_the_budget_holds(either_address, tmp_path) -> None:
    store = ArtifactStore(either_address)
    size = store.write(entry("a"), made(0), {}).size_bytes
    store.set_budget(8 * size)
    logs = [tmp_path / f"{i}" for i in range(3)]
    run_together(hammer, *((either_address, i, 1.0, str(log)) for i, log in enumerate(logs)))
    made_in_all = sum(int(log.read_text()) for log in logs)
    totals = store.index.totals()
    # Each key is made once per residence: every making but the last few led to an eviction.
    assert made_in_all == totals.misses
    assert made_in_all + 1 == totals.evicted + totals.count + totals.refused
    assert verify(store).is_sound
    assert len(store.index.select()) == totals.count <= 8
    store.close()


@POSTGRES_IN_FULL
@pytest.mark.slow
def test_what_a_killed_process_was_making_is_made_by_who_waits(either_address, tmp_path) -> None:
    log = tmp_path / "log"
    process = SPAWN.Process(target=hold_for_ever, args=(either_address, str(log)))
    process.start()
    while not log.exists():
        sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    store = ArtifactStore(either_address)
    kept, fresh = store.get_or_make(entry("a"), {}, lambda: made(1))
    assert fresh is not None
    assert kept.is_present
    assert store.index.totals().misses == 1
    store.close()


KEYS = st.sampled_from([f"{i:x}{i:x}" for i in range(1, 9)])

SIZES = st.sampled_from([200, 500, 1500])


def made_of(key: str, n: int) -> Made:
    matrix = canonical(np.random.default_rng([int(key, 16), n]).random((n, 1)))
    return Made({"train": matrix}, {"rows": n}, 1.0)


class StoreAgainstModel(RuleBasedStateMachine):
    """Every rule is done to both; after each, both hold the same."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.budget = 10_000_000
        self.store = ArtifactStore(StoreAddress(self.folder), self.budget)
        self.model: OrderedDict[str, tuple[int, int]] = OrderedDict()  # rows and bytes
        self.summaries: dict[str, int] = {}

    def shrink_model(self, limit: int) -> None:
        while sum(size for _, size in self.model.values()) > limit:
            self.model.popitem(last=False)

    @rule(key=KEYS, n=SIZES)
    def put(self, key: str, n: int) -> None:
        kept = self.store.write(entry(key), made_of(key, n), {"key": key})
        self.summaries[key] = n
        if kept.size_bytes > self.budget:
            assert not kept.is_present
            if key in self.model:
                self.summaries[key] = self.model[key][0]  # what is there stays, and its summary
            return
        self.model.pop(key, None)
        self.shrink_model(self.budget - kept.size_bytes)
        self.model[key] = (n, kept.size_bytes)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        found = self.store.index.entries([entry(key).key]).get(entry(key).key)
        if key not in self.model:
            assert found is None or not found.is_present
            return
        rows, _ = self.model[key]
        self.store.index.count_hit(found)
        read = self.store.read(found, ["train"])["train"]
        assert (read == made_of(key, rows).parts["train"]).all()
        self.model.move_to_end(key)

    @rule(limit=st.sampled_from([0, 5_000, 20_000]))
    def prune(self, limit: int) -> None:
        self.store.prune(limit)
        self.shrink_model(limit)

    @rule(budget=st.sampled_from([3_000, 12_000, 10_000_000]))
    def change_budget(self, budget: int) -> None:
        self.budget = budget
        self.store.set_budget(budget)
        self.shrink_model(budget)

    @precondition(lambda self: self.model)
    @rule()
    def lose_the_files_of_the_oldest(self) -> None:
        key, _ = self.model.popitem(last=False)
        (found,) = self.store.index.entries([entry(key).key]).values()
        shutil.rmtree(self.store.files.path("cache", found.key[:2], found.key))
        self.store.memory.drop(found.place)
        assert self.store.read(found, ["train"]) is None

    @rule()
    def open_again(self) -> None:
        self.store.close()
        self.store = ArtifactStore(StoreAddress(self.folder))

    @invariant()
    def both_hold_the_same(self) -> None:
        assert present(self.store) == set(self.model)
        totals = self.store.index.totals()
        assert totals.size_bytes == sum(size for _, size in self.model.values())
        assert totals.size_bytes <= self.budget
        known = self.store.index.entries([entry(key).key for key in self.summaries])
        assert {k.rstrip("0"): e.summary["rows"] for k, e in known.items()} == self.summaries

    def teardown(self) -> None:
        assert verify(self.store).is_sound
        self.store.close()
        shutil.rmtree(self.folder)


LOOK = """
import sys
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.ledger import Ledger
import prefect_tune.storage.inspection

store = ArtifactStore(StoreAddress(sys.argv[1]))
ledger = Ledger(store.database)
assert ledger.study("s") and not ledger.trials("s") and not store.index.select()
store.index.totals(), store.records.size_bytes(), store.close()
print(*{name.partition(".")[0] for name in sys.modules})
"""


@pytest.mark.slow
def test_looking_imports_nothing_heavy(tmp_path: Path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path)))
    Ledger(store.database).create_study("s", {}, {})
    store.close()
    command = [sys.executable, "-c", LOOK, str(tmp_path)]
    looked = subprocess.run(command, capture_output=True, text=True, check=True)
    heavy = {"alembic", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "ConfigSpace"}
    heavy |= {"prefect", "dask"}
    assert heavy.isdisjoint(looked.stdout.split())


TestStoreAgainstModel = pytest.mark.slow(StoreAgainstModel.TestCase)
TestStoreAgainstModel.settings = settings(max_examples=10, stateful_step_count=25, deadline=None)
