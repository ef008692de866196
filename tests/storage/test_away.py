"""A store with its folder or bucket unreachable for a while: no second store is created."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from contracts.store import entry, put
from processes import wait_for
from services.faulty_bucket import FaultyProxy, faulty_bucket

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.database import DatabaseLost
from prefect_tune.storage.files import FilesLost, StoreAway, new_place
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.lease import LeaseBook
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.notices import Notice, noticed_by
from prefect_tune.storage.waiting import OUTAGE_VARIABLE

pytestmark = pytest.mark.slow  # for they wait


@dataclass
class Folder:
    """The folder of a store, which can be taken away, and the outages noticed meanwhile."""

    path: Path
    kind: str
    outages: list[Notice] = field(default_factory=list)

    @property
    def hidden(self) -> Path:
        """Path of the folder during an outage."""
        return self.path.with_name("hidden")

    def take_away(self) -> None:
        other = self.path.with_name("other")
        if self.kind == "another store":
            ArtifactStore(StoreAddress(str(other))).close()
        self.path.rename(self.hidden)
        if self.kind == "empty":  # a mount point without its mount
            self.path.mkdir()
        elif self.kind == "another store":
            other.rename(self.path)

    def bring_back(self) -> None:
        if self.kind == "empty":
            self.path.rmdir()  # fails if anything was written there
        elif self.kind == "another store":
            # Moved at once: a thread may write to its database while its files are removed.
            self.path.rename(self.path.with_name("other"))
        assert not self.path.exists()
        self.hidden.rename(self.path)

    @contextmanager
    def away(self, n_outages: int) -> Iterator[None]:
        """Take the folder away for the body, and bring it back after `n_outages` outages."""

        def note(notice: Notice) -> None:
            if notice.kind == "outage":
                self.outages.append(notice)
                if len(self.outages) == n_outages:
                    self.bring_back()

        self.take_away()
        with noticed_by(note):
            yield


@pytest.fixture(params=["moved", "another store", pytest.param("empty", marks=pytest.mark.full)])
def folder(request, tmp_path) -> Folder:
    return Folder(tmp_path / "store", request.param)


@pytest.fixture
def store(folder) -> Iterator[ArtifactStore]:
    store = ArtifactStore(StoreAddress(str(folder.path)), memory_bytes=0)
    put(store, "kept")
    store.records.put("a/b", {"label": [1]}, "s")
    yield store
    store.close()


def read(store: ArtifactStore) -> Any:
    kept = store.index.entries([entry("kept").key])[entry("kept").key]
    return store.read(kept, ["train"])


def put_new(store: ArtifactStore) -> Any:
    assert put(store, "new").is_present
    return store.index.entries([entry("new").key])[entry("new").key].is_present


def publish(store: ArtifactStore) -> Any:
    folder = artifact_folder(entry("other").key)
    encoded = store.files.encode(folder, {"label": [1]})
    parts = store.files.publish(folder, new_place(), encoded)
    return store.files.read(folder, "label", parts["label"])


def enter_study(store: ArtifactStore) -> Any:
    return Ledger(store.database).create_study("s", {}, {})


OPERATIONS: list[Callable[[ArtifactStore], Any]] = [
    read,
    put_new,
    publish,
    enter_study,
    lambda store: store.leases.acquire("mine"),
    lambda store: store.records.get("a/b"),
]


@pytest.mark.parametrize("work", OPERATIONS)
def test_work_on_an_unreachable_store_completes_once_the_store_is_back(store, folder, work) -> None:
    with folder.away(n_outages=1):
        store.database.close()  # as at the renewal of a lease
        assert work(store)
    assert folder.outages
    assert not verify(store).missing


def test_nothing_is_written_to_a_moved_folder_before_a_lease_renewal(store, folder) -> None:
    ledger, book = Ledger(store.database), LeaseBook(store.database, lease_seconds=0.6)
    assert book.acquire("study before")
    assert ledger.create_study("before", {}, {})
    late = threading.Thread(target=ledger.create_study, args=("late", {}, {}))
    with folder.away(n_outages=0):
        wait_for(lambda: folder.outages)  # at a renewal
        late.start()
        wait_for(lambda: len(folder.outages) > 1)
        with closing(sqlite3.connect(folder.hidden / "index.sqlite")) as hidden:
            assert hidden.execute("SELECT name FROM studies").fetchall() == [("before",)]
        folder.bring_back()
        late.join()
    assert set(ledger.study_names()) == {"before", "late"}
    book.close()


def test_worker_creates_no_second_store_while_the_known_store_is_away(store, folder) -> None:
    folder.take_away()
    with pytest.raises(StoreAway):
        ArtifactStore(store.address)
    folder.bring_back()
    again = ArtifactStore(store.address)
    assert again.id == store.id
    again.close()


def test_store_that_never_returns_is_lost_and_later_calls_do_not_wait(
    store, folder, monkeypatch
) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.5")
    with folder.away(n_outages=0):
        store.database.close()
        for _ in range(2):
            with pytest.raises(FilesLost):
                publish(store)
            with pytest.raises(DatabaseLost):
                enter_study(store)
    assert len({notice.subject for notice in folder.outages}) == len(folder.outages) == 2
    folder.bring_back()
    assert publish(store)
    assert enter_study(store)


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultyProxy]:
    with faulty_bucket() as proxy:
        yield proxy


@pytest.fixture
def in_bucket(proxy, tmp_path) -> Iterator[ArtifactStore]:  # noqa: ARG001
    """A store in the bucket behind the proxy."""
    address = StoreAddress(f"s3://bucket/{uuid4().hex}", f"sqlite:///{tmp_path}/index.sqlite")
    store = ArtifactStore(address, memory_bytes=0)
    yield store
    store.close()


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "kind"),
    [("cut", "outage"), ("away", "outage"), ("errors", "artifacts"), ("undeletable", "artifacts")],
)
def test_work_waits_for_a_faulty_bucket_and_skips_refused_requests(
    proxy, in_bucket, fault, kind
) -> None:
    store, heard = in_bucket, []

    def mend(notice: Notice) -> None:
        heard.append(notice.kind)
        proxy.fault = ""

    put(store, "a")
    proxy.fault = fault
    with noticed_by(mend):
        assert put(store, "b").is_present == (fault != "errors")
        store.records.put("data/x", {"v": 1})
        store.prune(0)
    assert set(heard) == {kind}  # maybe twice: threads of a store wait each for itself
    store.sweep()
    assert store.records.get("data/x") == {"v": 1}
    assert verify(store).is_sound


@pytest.mark.full
def test_many_records_are_deleted_from_a_bucket_in_few_requests(proxy, in_bucket) -> None:
    for number in range(20):
        in_bucket.records.put(f"predictions/{number}", {"label": [1], "score": [2]}, "s")
    before = proxy.n_requests
    assert len(in_bucket.records.release("s")) == 20
    assert proxy.n_requests - before < 5
    assert in_bucket.files.filesystem.find(in_bucket.files.path("records")) == []
    assert in_bucket.index.journal.unfinished() == []
