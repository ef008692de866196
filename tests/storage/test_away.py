"""A store whose folder is away for a while: waited for, and never taken for another store."""

import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from contracts.store import entry, made, put

from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.database import DatabaseLost
from prefect_tune.storage.files import Damaged, FilesLost, StoreAway, new_place
from prefect_tune.storage.inspection import verify
from prefect_tune.storage.keys import artifact_folder
from prefect_tune.storage.lease import LeaseBook
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.notices import Notice, noticed_by, warn
from prefect_tune.storage.waiting import OUTAGE_VARIABLE

pytestmark = pytest.mark.slow  # for they wait

AWAY_SECONDS = 0.5


@dataclass
class Folder:
    """The folder of a store, which can be taken away."""

    path: Path
    kind: str

    @property
    def hidden(self) -> Path:
        """Where it is meanwhile."""
        return self.path.with_name("hidden")

    def take_away(self) -> None:
        self.path.rename(self.hidden)
        if self.kind == "empty":  # a mount point without its mount
            self.path.mkdir()
        elif self.kind == "a file":
            self.path.write_text("in the way")
        elif self.kind == "another store":
            ArtifactStore(StoreAddress(str(self.path))).close()

    def bring_back(self) -> None:
        if self.kind == "empty":
            self.path.rmdir()  # fails if anything was written there
        elif self.kind == "a file":
            self.path.unlink()
        elif self.kind == "another store":
            # Moved at once: a thread may write to its database while its files are removed.
            self.path.rename(self.path.with_name("other"))
        assert not self.path.exists()
        self.hidden.rename(self.path)

    @contextmanager
    def away_for_a_while(self, seconds: float = AWAY_SECONDS) -> Iterator[None]:
        """Be away when the body begins, and come back while it waits."""
        self.take_away()
        with ThreadPoolExecutor(1) as pool:
            back = pool.submit(lambda: (sleep(seconds), self.bring_back()))
            yield
        back.result()


def only_here(heard: list[Notice]) -> Callable[[Notice], None]:
    """Return a listener for this thread; those that count uses of a cache warn by themselves."""
    here = threading.get_ident()

    def listen(notice: Notice) -> None:
        if threading.get_ident() == here:
            heard.append(notice)

    return listen


@pytest.fixture(autouse=True)
def _hear_earlier_warnings() -> None:
    """Take the warnings that other tests have left for the next listener."""
    with noticed_by(lambda _: None):
        pass


OTHER_KINDS = ("empty", "a file", "another store")


@pytest.fixture(params=["moved", *(pytest.param(k, marks=pytest.mark.full) for k in OTHER_KINDS)])
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
    found = store.read(kept, ["train"])
    assert found is not None
    return found


def put_new(store: ArtifactStore) -> Any:
    assert put(store, "new").is_present
    return store.index.entries([entry("new").key])[entry("new").key].is_present


def publish(store: ArtifactStore) -> Any:
    folder = artifact_folder(entry("other").key)
    encoded = store.files.encode(folder, {"label": [1]})
    parts = store.files.publish(folder, new_place(), encoded)
    return store.files.read(folder, "label", parts["label"])


def put_record(store: ArtifactStore) -> Any:
    store.records.put("a/c", {"label": [2]}, "s")
    return store.records.get("a/c")


def clear(store: ArtifactStore) -> Any:
    place = store.index.entries([entry("kept").key])[entry("kept").key].place
    folder = artifact_folder(entry("kept").key)
    store.files.clear(folder, place)
    return not Path(store.files.path(folder, place)).exists()


def enter_study(store: ArtifactStore) -> Any:
    return Ledger(store.database).create_study("s", {}, {})


def take_lease(store: ArtifactStore) -> Any:
    assert store.leases.acquire("mine")
    store.leases.release("mine")
    return True


OPERATIONS: list[Callable[[ArtifactStore], Any]] = [
    read,
    put_new,
    publish,
    put_record,
    clear,
    enter_study,
    take_lease,
    lambda store: store.files.free_bytes() > 0,
    lambda store: store.records.get("a/b"),
    lambda store: store.records.release("s"),
]


@pytest.mark.parametrize("work", OPERATIONS)
def test_work_on_a_store_that_is_away_is_done_when_it_is_back(store, folder, work) -> None:
    heard: list[Notice] = []
    with noticed_by(heard.append), folder.away_for_a_while():
        store.database.close()  # as at the renewal of a lease
        assert work(store)
    assert {notice.kind for notice in heard} - {"usage"} == {"outage"}  # uses are written meanwhile
    assert not verify(store).missing or work is clear


def test_nothing_is_written_to_a_folder_that_was_moved_away_before_a_renewal(store, folder) -> None:
    ledger, book = Ledger(store.database), LeaseBook(store.database, lease_seconds=0.6)
    assert book.acquire("study before")
    assert ledger.create_study("before", {}, {})
    with folder.away_for_a_while(4 * AWAY_SECONDS):
        sleep(AWAY_SECONDS)  # for a renewal
        late = threading.Thread(target=ledger.create_study, args=("late", {}, {}))
        late.start()
        sleep(AWAY_SECONDS)
        with closing(sqlite3.connect(folder.hidden / "index.sqlite")) as hidden:
            assert hidden.execute("SELECT name FROM studies").fetchall() == [("before",)]
    late.join()
    assert set(ledger.study_names()) == {"before", "late"}
    book.close()


def test_a_worker_that_opens_a_known_store_does_not_make_another(store, folder) -> None:
    folder.take_away()
    with pytest.raises(StoreAway):
        ArtifactStore(store.address)
    folder.bring_back()
    again = ArtifactStore(store.address)
    assert again.id == store.id
    again.close()


def test_a_store_that_stays_away_is_lost_and_later_calls_do_not_wait(
    store, folder, monkeypatch
) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.5")
    folder.take_away()
    store.database.close()
    heard: list[Notice] = []
    with noticed_by(heard.append):  # in any thread: the one that counts uses may wait first
        with pytest.raises(FilesLost):
            publish(store)
        with pytest.raises(DatabaseLost):
            enter_study(store)
        waits = [notice for notice in heard if notice.kind == "outage"]
        with pytest.raises(FilesLost):
            publish(store)
        with pytest.raises(DatabaseLost):
            enter_study(store)
    assert len({notice.subject for notice in waits}) == 2
    assert [notice for notice in heard if notice.kind == "outage"] == waits
    folder.bring_back()
    assert publish(store)
    assert enter_study(store)


def test_an_artifact_that_is_missing_in_a_store_that_is_there_is_a_miss(tmp_path) -> None:
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")), memory_bytes=0)
    kept = put(store, "a")
    shutil.rmtree(store.files.path("cache"))
    heard: list[Notice] = []
    with noticed_by(only_here(heard)):
        with pytest.raises(Damaged):
            store.files.read(artifact_folder(kept.key), "train", kept.parts["train"])
        assert store.read(kept, ["train"]) is None
    assert [notice.kind for notice in heard] == ["damaged"]
    _, again = store.get_or_make(replace(entry("a")), {}, made)
    assert again is not None
    store.close()


def test_a_password_in_a_warning_is_masked_in_the_log_and_for_listeners(caplog) -> None:
    heard: list[Notice] = []
    with noticed_by(only_here(heard)):
        warn("trouble", "records of s3://me:hunter22@host/x stay", "s3://me:hunter22@host/x")

    assert "hunter22" not in caplog.text + str(heard)
    assert "me:***@host" in caplog.text
