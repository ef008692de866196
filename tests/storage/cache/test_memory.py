import numpy as np
from contracts.store import entry, made, put
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from prefect_tune.storage import ArtifactStore, Made
from prefect_tune.storage.key import artifact_folder
from prefect_tune.storage.matrices import canonical
from prefect_tune.storage.writer import MemoryTier


def frozen(n: int) -> np.ndarray:
    return canonical(np.zeros(n, dtype=np.int8))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 60)), max_size=40))
def test_it_never_holds_more_than_its_budget(puts) -> None:
    tier = MemoryTier(100)
    for place, n in puts:
        tier.put(str(place), "x", frozen(n))
        held = [tier.get(str(p), "x") for p in range(6)]
        assert tier.size_bytes == sum(a.nbytes for a in held if a is not None) <= 100


def test_the_least_recently_used_goes_first() -> None:
    tier = MemoryTier(100)
    tier.put("a", "x", frozen(50))
    tier.put("b", "x", frozen(50))
    tier.get("a", "x")
    tier.put("c", "x", frozen(50))
    assert tier.get("b", "x") is None
    assert tier.get("a", "x") is not None


def test_what_somebody_could_change_is_not_held() -> None:
    tier = MemoryTier(10_000)
    for value in (np.zeros(3), sparse.csr_array(np.eye(3)), [1, 2], "text"):
        tier.put("a", "x", value)
        assert tier.get("a", "x") is None
    tier.put("a", "x", canonical(sparse.csr_array(np.eye(3))))
    assert tier.get("a", "x") is not None


def test_a_second_read_comes_from_memory_and_is_the_same(address) -> None:
    store = ArtifactStore(address)
    kept = put(store, "a")
    store.memory.drop(kept.place)
    first = store.read(kept, ["train"])["train"]
    assert store.read(kept, ["train"])["train"] is first
    assert not first.flags.writeable
    store.close()


def test_what_was_evicted_and_made_again_is_read_anew(address) -> None:
    store = ArtifactStore(address)
    former = put(store, "a")
    store.prune(0)
    assert store.memory.size_bytes == 0
    again = store.write(entry("a"), made(7), {})
    assert len(store.read(again, ["train"])["train"]) == 7
    assert store.read(former, ["train"]) is None
    store.close()


def test_a_pickle_that_is_held_gives_each_reader_a_value_of_its_own(address) -> None:
    store = ArtifactStore(address)
    model = {"weights": np.arange(3.0), 1: "not JSON"}
    kept = store.write(entry("m"), Made({"model": model}, {}, 1.0, held=("model",)), {})
    unheld = store.write(entry("n"), Made({"model": model}, {}, 1.0), {})
    assert store.memory.get(kept.place, "model") is not None
    assert store.memory.get(unheld.place, "model") is None
    store.files.delete(artifact_folder(kept.key))
    one, other = (store.read(kept, ["model"])["model"] for _ in range(2))
    assert one is not other
    assert one["weights"].tolist() == other["weights"].tolist() == [0, 1, 2]
    store.close()
