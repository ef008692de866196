"""Files of an artifact go to a bucket side by side, and its index follows when all are there."""

from pathlib import Path
from threading import Barrier
from uuid import uuid4

from contracts.store import entry
from services.faulty_bucket import faulty_bucket

from prefect_tune.storage import ArtifactStore, Made, StoreAddress
from prefect_tune.storage.inspection import verify

PARTS = {"train": {"a": 1}, "held_out": {"b": 2}, "estimator": {"c": 3}}


def test_all_files_are_written_at_the_same_time_and_then_the_index(tmp_path: Path) -> None:
    with faulty_bucket() as proxy:
        address = StoreAddress(f"s3://bucket/{uuid4().hex}", f"sqlite:///{tmp_path}/index.sqlite")
        store, known = ArtifactStore(address, memory_bytes=0), []

        def look() -> None:
            known.append(store.index.entries([entry("a").key]))

        proxy.meeting = Barrier(len(PARTS) + 1, action=look, timeout=60)  # and its provenance
        kept = store.write(entry("a"), Made(PARTS, {}, 1.0), {})
        assert known
        assert not any(known)
        proxy.meeting = None
        assert store.read(kept, list(PARTS)) == PARTS
        assert verify(store).is_sound
        store.close()


def test_many_records_go_with_few_requests(tmp_path: Path) -> None:
    with faulty_bucket() as proxy:
        address = StoreAddress(f"s3://bucket/{uuid4().hex}", f"sqlite:///{tmp_path}/index.sqlite")
        store = ArtifactStore(address, memory_bytes=0)
        for number in range(20):
            store.records.put(f"predictions/{number}", {"label": [1], "score": [2]}, "s")
        before = proxy.n_requests
        assert len(store.records.release("s")) == 20
        assert proxy.n_requests - before < 5
        assert store.files.filesystem.find(store.files.path("records")) == []
        assert store.index.journal.under_way() == []
        store.close()
