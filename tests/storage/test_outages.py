"""Outages of stores and databases: their causes, and waiting for their end."""

import errno
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from math import inf
from pathlib import Path
from threading import Event

import pytest
from processes import wait_for
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from prefect_tune.flows.study import lease as lease_module
from prefect_tune.flows.study.lease import StudyClock
from prefect_tune.storage import waiting
from prefect_tune.storage.database import Database, DatabaseLost, is_outage
from prefect_tune.storage.lease import LeaseBook
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.schema import lease_table, session_table
from prefect_tune.storage.waiting import Cause, cause_of, deferred_signals


@pytest.mark.parametrize(
    ("names", "cause"),
    [(["EIO", "ESTALE", "ENOTCONN", "EHOSTDOWN", "ETIMEDOUT"], Cause.AWAY),
     (["ECONNREFUSED", "ECONNRESET", "ENETRESET", "ENOLINK", "EAGAIN"], Cause.AWAY),
     (["ENOSPC", "EDQUOT"], Cause.FULL), (["EMFILE", "ENFILE", "ENOMEM"], Cause.PROCESS),
     (["ENOENT", "ENOTDIR", "EEXIST", "EFBIG", "EROFS", "EACCES", "EPERM"], None)],
)  # fmt: skip
def test_errno_distinguishes_outages_from_faults_of_the_process(names, cause) -> None:
    for name in names:
        number = getattr(errno, name)
        assert cause_of(OSError(number, os.strerror(number))) == cause


def sqlite_error(path: Path, *statements: str, **options: bool) -> sqlite3.Error:
    """Return the error that the last of these statements raises."""
    with pytest.raises(sqlite3.Error) as caught:  # noqa: PT012, SIM117
        with closing(sqlite3.connect(path, **options)) as connection:
            for statement in statements:
                connection.execute(statement)
    return caught.value


def test_full_read_only_and_missing_databases_are_told_apart(tmp_path) -> None:
    path, make = tmp_path / "a.sqlite", "CREATE TABLE a (b)"
    insert = "INSERT INTO a VALUES (zeroblob(100000))"
    assert cause_of(sqlite_error(path, "PRAGMA max_page_count=2", make, insert)) == Cause.FULL
    read_only = sqlite_error(f"file:{path}?mode=ro", "CREATE TABLE c (d)", uri=True)
    assert cause_of(read_only) is None
    gone = sqlite_error(tmp_path / "gone" / "a.sqlite", make)
    for error in (gone, OperationalError("", {}, gone)):  # the driver's, behind SQLAlchemy's
        assert cause_of(error) == Cause.AWAY
    assert cause_of(sqlite_error(path, "SELECT * FROM nothing")) is None


@pytest.mark.parametrize(
    ("name", "kind", "is_waited_for"),
    [("", DatabaseLost, True), ("EIO", DatabaseLost, True), ("EACCES", DatabaseLost, False),
     ("EROFS", DatabaseLost, False), ("EDQUOT", waiting.DiskFull, False),
     ("EMFILE", waiting.ProcessExhausted, False)],
)  # fmt: skip
def test_writing_a_probe_file_shows_why_sqlite_cannot_open_a_database(
    tmp_path, monkeypatch, name, kind, is_waited_for
) -> None:
    def write(_path: Path, data: bytes) -> int:
        if name:
            raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))
        return len(data)

    monkeypatch.setattr(Path, "write_bytes", write)
    database = Database(f"sqlite:///{tmp_path}/gone/index.sqlite")
    with (
        pytest.raises((DatabaseLost, waiting.DiskFull, waiting.ProcessExhausted)) as raised,
        database.read(),
    ):
        pytest.fail("it is not there")
    assert type(raised.value) is kind
    assert is_outage(raised.value) == is_waited_for


class RefusalError(Exception):
    """A refusal by an object store, as various clients describe it."""

    def __init__(self, **about: object) -> None:
        super().__init__("refused")
        vars(self).update(about)


@pytest.mark.parametrize(
    "about",
    [{"response": {"Error": {"Code": "QuotaExceeded"}}},
     {"response": {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": 507}}},
     {"status": 507}, {"status_code": 507}, {"sqlstate": "53100"}],
)  # fmt: skip
def test_server_without_space_counts_as_full_even_if_fsspec_wraps_the_error(about) -> None:
    refusal = RefusalError(**about)
    assert cause_of(refusal) == Cause.FULL
    wrapped = OSError(errno.EIO, "refused")
    wrapped.__cause__ = refusal
    assert cause_of(wrapped) == Cause.FULL
    assert cause_of(RefusalError(status=503, code="SlowDown")) is None


@pytest.mark.parametrize("of", ["leases", "sessions"])
def test_leases_and_session_times_are_renewed_after_an_outage(
    either_store, caplog, monkeypatch, of
) -> None:
    """The table of leases is renamed during the outage, so that every use fails."""

    def noted() -> float:
        column = lease_table.c.expires if of == "leases" else session_table.c.seconds
        with either_store.database.read() as connection:
            return float(connection.execute(select(column)).scalar_one())

    def rename(table: str, to: str) -> None:
        with either_store.database.write() as connection:
            connection.execute(text(f"ALTER TABLE {table} RENAME TO {to}"))

    monkeypatch.setattr(lease_module, "_BEAT_SECONDS", 0.02)
    monkeypatch.setenv(waiting.OUTAGE_VARIABLE, "0.1")  # it lasts longer than a beat waits for it
    book, ledger = (
        LeaseBook(either_store.database, lease_seconds=0.2),
        Ledger(either_store.database),
    )
    ledger.create_study("s", {}, {})
    assert book.acquire("a")
    with StudyClock(ledger, "s", 0.0).running():
        rename(of, "away")
        wait_for(lambda: "retrying" in caplog.text)
        rename("away", of)
        before = noted()
        wait_for(lambda: noted() > before)
    assert caplog.text.count("retrying") == 1
    book.close()


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The clock of waits, which advances only during pauses."""
    now = [1000.0]
    monkeypatch.setattr(waiting, "monotonic", lambda: now[0])
    monkeypatch.setattr(waiting, "sleep", lambda seconds: now.append(now.pop() + seconds))
    return now


class Away:
    """A service that is unreachable in the first `n_calls` calls; each call takes a moment."""

    def __init__(self, n_calls: float = inf) -> None:
        self.n_left, self.n_calls = n_calls, 0

    def __call__(self) -> str:
        self.n_calls += 1
        waiting.sleep(0.05)
        if self.n_calls <= self.n_left:
            raise ConnectionError("away at postgresql://me:secret@here")
        return "here"


def reached(service: Callable[[], object]) -> object:
    return waiting.retry_while_unreachable(
        service, lambda error: isinstance(error, ConnectionError)
    )


def test_work_waits_for_a_returning_service_and_waiting_does_not_count_as_work(
    clock, caplog
) -> None:
    service = Away(3)
    with waiting.waits_counted():
        stopwatch = waiting.Stopwatch()
        assert reached(service) == "here"
        assert stopwatch.seconds() == pytest.approx(0.05)
    assert service.n_calls == 4
    assert clock[0] > 1000.0 + 4 * 0.05  # there were pauses
    (message,) = caplog.messages  # once, however often it was tried
    assert "300 s" in message
    assert "me:***@here" in message


def test_outer_calls_do_not_wait_again_for_a_lost_service(clock) -> None:
    services, n_outer = [Away()], []

    def outer() -> None:
        n_outer.append(1)
        try:
            reached(services[0])
        except ConnectionError as error:
            raise ConnectionError("the store is away") from error

    with pytest.raises(ConnectionError, match="store is away"):
        reached(outer)
    assert clock[0] == pytest.approx(1300, abs=10)
    assert services[0].n_calls > 1
    assert n_outer == [1]


@pytest.mark.usefixtures("clock")
def test_interrupted_process_does_not_wait_for_the_end_of_outages_during_cleanup() -> None:
    service = Away()
    with pytest.raises(ConnectionError), ExitStack() as cleaning:  # noqa: PT012
        cleaning.callback(reached, service)
        cleaning.callback(reached, service)
        raise KeyboardInterrupt
    assert service.n_calls == 2


def test_heartbeat_can_be_stopped_during_an_outage() -> None:
    is_back, is_beating = Event(), Event()

    def beat() -> None:
        is_beating.set()
        is_back.wait()

    heartbeat = waiting.Heartbeat("test", beat, 0.001, "nothing is done")
    assert is_beating.wait(120)
    heartbeat.stop()  # or this test lasts for ever
    is_back.set()


@pytest.mark.usefixtures("clock")
def test_nested_waits_are_counted_once() -> None:
    heard, n_calls = [], []

    def waits() -> None:
        n_calls.append(1)
        with waiting.waiting(), waiting.waiting():
            waiting.sleep(0.2)
        if len(n_calls) == 1:
            raise ConnectionError

    with waiting.waits_counted(lambda waits: heard.append((waits.seconds, waits.since))):
        stopwatch = waiting.Stopwatch()
        reached(waits)
        assert stopwatch.seconds() == pytest.approx(0.0, abs=1e-9)
    assert [since is None for _, since in heard] == [False, True] * (len(heard) // 2)
    assert heard[-1][0] == pytest.approx(0.2 + 0.2 + 0.2)  # both calls, and the pause between


class Interrupted(BaseException):
    pass


@pytest.fixture
def send() -> Iterator[Callable[[], None]]:
    """A signal, which raises `Interrupted` as soon as allowed."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    def handle(*_: object) -> None:
        if not waiting.was_deferred(interrupt):
            interrupt()

    former = signal.signal(signal.SIGTERM, handle)
    yield lambda: signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, former)


def test_interrupted_transaction_is_committed_before_the_interrupt_is_raised(
    tmp_path, send
) -> None:
    database = Database(f"sqlite:///{tmp_path}/x.sqlite")

    def change() -> None:
        with deferred_signals(), database.write() as connection:
            connection.execute(text("CREATE TABLE t (x INTEGER)"))
            send()
            connection.execute(text("INSERT INTO t VALUES (1)"))

    with pytest.raises(Interrupted):
        change()
    other = Database(database.url)
    with other.write() as connection:  # nobody holds the lock
        assert connection.execute(text("SELECT x FROM t")).scalar_one() == 1
    with deferred_signals():  # and it is raised once
        pass
    for opened in (database, other):
        opened.close()


@pytest.mark.parametrize("is_of_service", [True, False])
def test_signal_ends_a_wait(send, is_of_service) -> None:
    def call() -> None:
        send()
        raise ConnectionError

    def wait() -> None:
        with deferred_signals():
            if is_of_service:
                reached(call)
            with deferred_signals(is_deferred=False):
                send()
                pytest.fail("it went on")

    with pytest.raises(Interrupted):
        wait()
