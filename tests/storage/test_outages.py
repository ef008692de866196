"""Outages of stores and databases: whose fault they are, and how they are waited for."""

import errno
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from time import monotonic, sleep

import pytest
from contracts.store import POSTGRES_IN_FULL
from processes import wait_for
from sqlalchemy import create_engine, select, text
from sqlalchemy.exc import OperationalError

from prefect_tune.flows.study import lease as lease_module
from prefect_tune.flows.study.lease import StudyClock
from prefect_tune.storage import waiting as outage
from prefect_tune.storage.artifacts import ArtifactStore
from prefect_tune.storage.database import Database, DatabaseLost
from prefect_tune.storage.database import is_outage as is_outage_of_database
from prefect_tune.storage.lease import LeaseBook
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.notices import Notice, noticed_by
from prefect_tune.storage.schema import lease_table
from prefect_tune.storage.waiting import (
    OUTAGE_VARIABLE,
    Cause,
    DiskFull,
    Heartbeat,
    ProcessExhausted,
    Stopwatch,
    Waits,
    cause_of,
    deferred_signals,
    retry_while_unreachable,
    waiting,
    waits_counted,
    was_deferred,
)


@pytest.mark.parametrize(
    ("names", "cause"),
    [(["EIO", "ESTALE", "ENOTCONN", "EHOSTDOWN", "ETIMEDOUT"], Cause.AWAY),
     (["ECONNREFUSED", "ECONNRESET", "ENETRESET", "ENOLINK", "EAGAIN"], Cause.AWAY),
     (["ENOSPC", "EDQUOT"], Cause.FULL), (["EMFILE", "ENFILE", "ENOMEM"], Cause.PROCESS),
     (["ENOENT", "ENOTDIR", "EEXIST", "EFBIG", "EROFS", "EACCES", "EPERM"], None)],
)  # fmt: skip
def test_an_errno_tells_the_store_from_the_process(names, cause) -> None:
    for name in names:
        number = getattr(errno, name)
        assert cause_of(OSError(number, os.strerror(number))) == cause


def sqlite_error(*statements: str, path: str = ":memory:", **options: bool) -> sqlite3.Error:
    try:
        with closing(sqlite3.connect(path, **options)) as connection:
            for statement in statements:
                connection.execute(statement)
    except sqlite3.Error as error:
        return error
    raise AssertionError("there was no error")


def test_a_database_that_is_full_read_only_or_not_there(tmp_path) -> None:
    filled = sqlite_error(
        "PRAGMA max_page_count=2", "CREATE TABLE a (b)", "INSERT INTO a VALUES (zeroblob(100000))"
    )
    assert cause_of(filled) == Cause.FULL
    path = tmp_path / "a.sqlite"
    sqlite3.connect(path).close()
    read_only = sqlite_error("CREATE TABLE a (b)", path=f"file:{path}?mode=ro", uri=True)
    assert cause_of(read_only) is None
    gone = sqlite_error("CREATE TABLE a (b)", path=str(tmp_path / "gone" / "a.sqlite"))
    assert cause_of(gone) == Cause.AWAY
    engine = create_engine(f"sqlite:///{tmp_path}/gone/a.sqlite")
    with pytest.raises(OperationalError) as caught, engine.connect():
        pytest.fail("it is not there")
    assert cause_of(caught.value) == Cause.AWAY  # the driver's error, behind SQLAlchemy's
    assert cause_of(sqlite_error("SELECT * FROM nothing")) is None


@pytest.mark.parametrize(
    ("name", "kind", "is_waited_for"),
    [("", DatabaseLost, True), ("EIO", DatabaseLost, True), ("ENOENT", DatabaseLost, True),
     ("EACCES", DatabaseLost, False), ("EROFS", DatabaseLost, False),
     ("EDQUOT", DiskFull, False), ("EMFILE", ProcessExhausted, False)],
)  # fmt: skip
def test_a_file_beside_the_database_tells_why_sqlite_cannot_open_it(
    tmp_path, monkeypatch, name, kind, is_waited_for
) -> None:
    def write(_path: Path, data: bytes) -> int:
        if name:
            raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))
        return len(data)

    monkeypatch.setattr(Path, "write_bytes", write)
    database = Database(f"sqlite:///{tmp_path}/gone/index.sqlite")
    with pytest.raises((DatabaseLost, DiskFull, ProcessExhausted)) as raised, database.read():
        pytest.fail("it is not there")
    assert type(raised.value) is kind
    assert is_outage_of_database(raised.value) == is_waited_for


class RefusalError(Exception):
    """An answer of an object store, as the clients of its kinds describe it."""

    def __init__(self, **about: object) -> None:
        super().__init__("refused")
        vars(self).update(about)


@pytest.mark.parametrize(
    "about",
    [{"response": {"Error": {"Code": "QuotaExceeded"}}},
     {"response": {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": 507}}},
     {"status": 507}, {"status_code": 507}, {"sqlstate": "53100"}],
)  # fmt: skip
def test_a_server_without_room_is_full_also_behind_the_error_of_fsspec(about) -> None:
    refusal = RefusalError(**about)
    assert cause_of(refusal) == Cause.FULL
    wrapped = OSError(errno.EIO, "refused")
    wrapped.__cause__ = refusal
    assert cause_of(wrapped) == Cause.FULL
    assert cause_of(RefusalError(status=503, code="SlowDown")) is None


def rename(either_store: ArtifactStore, table: str, to: str) -> None:
    """Take a table away, or bring it back: all that uses it fails meanwhile."""
    with either_store.database.write() as connection:
        connection.execute(text(f"ALTER TABLE {table} RENAME TO {to}"))


def warnings(caplog, beginning: str) -> list[str]:
    return [m for m in caplog.messages if m.startswith(beginning)]


@POSTGRES_IN_FULL
def test_leases_are_renewed_again_after_an_outage(either_store, caplog) -> None:
    def expires() -> float:
        with either_store.database.read() as connection:
            return connection.execute(select(lease_table.c.expires)).scalar_one()

    book = LeaseBook(either_store.database, lease_seconds=0.2)
    assert book.acquire("a")
    rename(either_store, "leases", "away")
    wait_for(lambda: warnings(caplog, "leases are not renewed"))
    rename(either_store, "away", "leases")
    at_its_end = expires()
    wait_for(lambda: expires() > at_its_end)
    assert len(warnings(caplog, "leases are not renewed")) == 1
    book.close()


@POSTGRES_IN_FULL
def test_the_time_of_a_session_is_noted_again_after_an_outage(
    either_store, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(lease_module, "_BEAT_SECONDS", 0.02)
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.1")  # it lasts longer than a beat waits for it
    ledger = Ledger(either_store.database)
    ledger.create_study("s", {}, {})
    with StudyClock(ledger, "s", 0.0).running():
        rename(either_store, "sessions", "away")
        wait_for(lambda: warnings(caplog, "the study's time is not recorded"))
        rename(either_store, "away", "sessions")
        before = ledger.study("s").seconds
        wait_for(lambda: ledger.study("s").seconds > before)
    assert len(warnings(caplog, "the study's time is not recorded")) == 1


def test_each_outage_is_reported_once(caplog) -> None:
    outcomes = [ValueError("one"), ValueError("two"), None, ValueError("three"), ValueError("four")]
    ended = Event()

    def beat() -> None:
        if not outcomes:
            ended.set()
        elif error := outcomes.pop(0):
            raise error

    heartbeat = Heartbeat("test", beat, 0.001, "nothing is done")
    assert ended.wait(60)
    heartbeat.stop()
    assert [message.rpartition(" ")[2] for message in caplog.messages] == ["one", "three"]


class Away:
    """A service that is away for some calls, each of which takes a moment."""

    def __init__(self, n_calls: int) -> None:
        self.n_left, self.n_calls = n_calls, 0

    def __call__(self) -> str:
        self.n_calls += 1
        outage.sleep(0.05)
        if self.n_left:
            self.n_left -= 1
            raise ConnectionError(f"away at postgresql://me:secret@here for {self.n_left} more")
        return "here"


def is_outage(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


def test_a_service_that_comes_back_is_waited_for(caplog) -> None:
    service = Away(3)
    assert retry_while_unreachable(service, is_outage) == "here"
    assert service.n_calls == 4
    (message,) = caplog.messages  # once, however often it was tried
    assert "300 s" in message
    assert "me:***@here" in message


@pytest.mark.slow
def test_a_bucket_that_cuts_its_connections_is_waited_for(behind_proxy) -> None:
    (proxy, store), heard = behind_proxy, []

    def mend(notice: Notice) -> None:
        if notice.kind == "outage":
            heard.append(notice.text)
            proxy.fault = ""

    proxy.fault = "cut"
    with noticed_by(mend):
        store.records.put("data/x", {"v": 1})
    assert store.records.get("data/x") == {"v": 1}
    assert heard  # maybe twice: threads of a store wait each for itself


def test_one_that_stays_away_ends_in_its_error(monkeypatch) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.5")
    service = Away(1_000_000)
    with pytest.raises(ConnectionError):
        retry_while_unreachable(service, is_outage)
    assert service.n_calls > 1


def test_what_was_waited_out_inside_of_a_call_is_not_waited_for_again(monkeypatch) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.3")
    outer_calls = []

    def outer() -> None:
        outer_calls.append(1)
        try:
            retry_while_unreachable(Away(1_000_000), is_outage)
        except ConnectionError as error:
            raise ConnectionError("the store is away") from error

    with pytest.raises(ConnectionError, match="store is away"):
        retry_while_unreachable(outer, is_outage)
    assert outer_calls == [1]


def test_an_interrupted_process_waits_for_no_outage_while_it_cleans_up() -> None:
    service = Away(1_000_000)

    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            try:
                retry_while_unreachable(service, is_outage)
            finally:
                retry_while_unreachable(service, is_outage)

    with pytest.raises(ConnectionError):
        interrupted()
    assert service.n_calls == 2


@pytest.mark.timeout(60)
def test_a_heartbeat_that_waits_for_an_outage_can_be_stopped() -> None:
    is_away, is_beating = Event(), Event()

    def beat() -> None:
        is_beating.set()
        is_away.wait(120)

    heartbeat = Heartbeat("test", beat, 0.001, "nothing is done")
    assert is_beating.wait(60)
    since = monotonic()
    heartbeat.stop()
    assert monotonic() - since < 30
    is_away.set()


def test_other_errors_are_raised_at_once() -> None:
    calls = []

    def broken() -> None:
        calls.append(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        retry_while_unreachable(broken, is_outage)
    assert calls == [1]


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time of waits, which only pauses advance."""
    now = [1000.0]
    monkeypatch.setattr(outage, "monotonic", lambda: now[0])
    monkeypatch.setattr(outage, "sleep", lambda seconds: now.append(now.pop() + seconds))
    return now


def test_what_was_in_vain_counts_as_waiting_and_the_last_call_does_not(clock) -> None:
    with waits_counted():
        stopwatch = Stopwatch()
        retry_while_unreachable(Away(2), is_outage)
        assert stopwatch.seconds() == pytest.approx(0.05)
    assert clock[0] > 1000.0 + 3 * 0.05  # there were pauses


@pytest.mark.usefixtures("clock")
def test_a_wait_inside_of_a_call_in_vain_counts_once() -> None:
    n_calls = 0

    def waits() -> None:
        nonlocal n_calls
        n_calls += 1
        with waiting():
            outage.sleep(0.2)
        if n_calls == 1:
            raise ConnectionError

    with waits_counted():
        stopwatch = Stopwatch()
        retry_while_unreachable(waits, is_outage)
        assert stopwatch.seconds() == pytest.approx(0.0, abs=1e-9)


def test_a_wait_is_known_while_it_lasts() -> None:
    heard = []

    def note(waits: Waits) -> None:
        heard.append((waits.seconds, waits.since))

    with waits_counted(note):
        for _ in range(2):
            with waiting(), waiting():
                sleep(0.01)
    (first, began), (once, ended), (same, _), (twice, _) = heard
    assert (first, ended) == (0.0, None)
    assert began is not None
    assert twice > same == once > 0.0


class Interrupted(BaseException):
    pass


def interrupt() -> None:
    raise Interrupted


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    """Signals raise `Interrupted` as soon as they may."""

    def handle(*_: object) -> None:
        if not was_deferred(interrupt):
            interrupt()

    former = signal.signal(signal.SIGTERM, handle)
    yield
    signal.signal(signal.SIGTERM, former)


def send() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_a_transaction_that_is_interrupted_is_committed_and_then_the_interrupt_is_raised(
    tmp_path,
) -> None:
    database = Database(f"sqlite:///{tmp_path}/x.sqlite")

    def change() -> None:
        with database.write() as connection:
            connection.execute(text("CREATE TABLE t (x INTEGER)"))
            send()
            connection.execute(text("INSERT INTO t VALUES (1)"))

    with pytest.raises(Interrupted):
        change()
    other = Database(database.url)
    with other.write() as connection:  # nobody holds the lock
        assert connection.execute(text("SELECT x FROM t")).scalar_one() == 1
    for opened in (database, other):
        opened.close()


def test_the_outermost_body_is_ended_first() -> None:
    done = []

    def body() -> None:
        with deferred_signals():
            with deferred_signals():
                send()
            done.append(True)

    with pytest.raises(Interrupted):
        body()
    assert done
    with deferred_signals():  # and it is raised once
        pass


def waiting_inside() -> None:
    with deferred_signals(), deferred_signals(is_deferred=False):
        send()
        pytest.fail("it went on")


def waiting_later() -> None:
    with deferred_signals():
        send()
        with deferred_signals(is_deferred=False):
            pytest.fail("it went on")


def waiting_for_a_service() -> None:
    def call() -> None:
        send()
        raise ConnectionError

    with deferred_signals():
        retry_while_unreachable(call, lambda error: isinstance(error, ConnectionError))


@pytest.mark.parametrize("wait", [waiting_inside, waiting_later, waiting_for_a_service])
def test_a_wait_is_broken_off(wait: Callable[[], None]) -> None:
    with pytest.raises(Interrupted):
        wait()


def test_other_threads_put_nothing_off() -> None:
    inside, may_end = threading.Event(), threading.Event()

    def work() -> None:
        with deferred_signals():
            inside.set()
            may_end.wait(60)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(60)
    with pytest.raises(Interrupted):
        send()
    may_end.set()
    thread.join()
