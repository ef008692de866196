"""A store against a dict and an exact model of least recently used eviction."""

import shutil
import tempfile
from collections import OrderedDict

import numpy as np
from contracts.store import entry, present
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from prefect_tune.storage import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.matrices import canonical

KEYS = st.sampled_from([f"{i:x}{i:x}" for i in range(1, 9)])
SIZES = st.sampled_from([200, 500, 1500])


def made(key: str, n: int) -> Made:
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
        kept = self.store.write(entry(key), made(key, n), {"key": key})
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
        self.store.index.usage.count_hit(found)
        read = self.store.read(found, ["train"])["train"]
        assert (read == made(key, rows).parts["train"]).all()
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
        assert totals.cache_bytes == sum(size for _, size in self.model.values())
        assert totals.cache_bytes <= self.budget
        known = self.store.index.entries([entry(key).key for key in self.summaries])
        assert {k.rstrip("0"): e.summary["rows"] for k, e in known.items()} == self.summaries

    def teardown(self) -> None:
        assert verify(self.store).is_sound
        self.store.close()
        shutil.rmtree(self.folder)


TestStoreAgainstModel = StoreAgainstModel.TestCase
TestStoreAgainstModel.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
