"""The log of a series: events in order and once, appended only by the holder of its lease."""

from collections.abc import Iterator

import pytest
from services import Postgres
from sqlalchemy import update

from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage import series as module
from prefect_tune.storage.lease import LeaseLost
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import lease_table
from prefect_tune.storage.series import SeriesLog, series_lease


@pytest.fixture
def log(either_store) -> Iterator[SeriesLog]:
    """A log with the series `n`, which this process holds."""
    assert either_store.leases.acquire(series_lease("n"))
    log = SeriesLog(either_store.database)
    assert log.create("n", {"metric": "error"})
    yield log
    either_store.leases.release(series_lease("n"))


def test_a_series_keeps_the_question_it_was_created_with(log) -> None:
    assert not log.create("n", {"metric": "auroc"})
    assert log.series("n").question == {"metric": "error"}
    assert log.series("other") is None


def test_events_come_back_in_order(log) -> None:
    for kind, study in (("run", "n-1"), ("decision", "n-1"), ("run", "n-2")):
        assert log.append("n", kind, study, {"loss": 0.1 + 0.2})
    events = log.events("n")
    assert [(e.sequence, e.kind, e.study) for e in events] == [
        (0, "run", "n-1"), (1, "decision", "n-1"), (2, "run", "n-2"),
    ]  # fmt: skip
    assert events[0].body == {"loss": 0.1 + 0.2}
    assert [e.at for e in events] == sorted(e.at for e in events)
    assert log.events("other") == []


def test_an_event_can_be_appended_once_per_study_and_kind(log) -> None:
    assert log.append("n", "decision", "n-1", {"promoted": True}, once=True)
    assert not log.append("n", "decision", "n-1", {"promoted": False}, once=True)
    assert log.append("n", "decision", "n-2", {}, once=True)
    assert log.append("n", "run", "n-1", {}, once=True)
    assert [e.body for e in log.events("n")][:2] == [{"promoted": True}, {}]


def test_a_process_without_the_lease_changes_nothing(either_store) -> None:
    log = SeriesLog(either_store.database)
    log.create("n", {})
    with pytest.raises(LeaseLost):
        log.append("n", "run", "n-1", {})
    assert either_store.leases.acquire(series_lease("n"))
    log.append("n", "run", "n-1", {})
    with either_store.database.write() as connection:  # as another process takes over
        other = ProcessIdentity.this_process()._replace(pid=1).to_text()
        connection.execute(update(lease_table).values(holder=other))
    for change in (lambda: log.append("n", "run", "n-2", {}), lambda: log.delete("n")):
        with pytest.raises(LeaseLost, match="series n"):
            change()
    assert [e.study for e in log.events("n")] == ["n-1"]


def test_a_removed_series_leaves_no_event(log) -> None:
    log.append("n", "run", "n-1", {})
    log.delete("n")
    assert (log.series("n"), log.events("n"), log.names()) == (None, [], [])


@pytest.mark.slow
def test_an_event_is_there_once_after_a_restart_of_the_database(tmp_path, monkeypatch) -> None:
    server = Postgres(tmp_path / "postgres")
    store = ArtifactStore(StoreAddress(str(tmp_path / "store"), server.new_database()))
    assert store.leases.acquire(series_lease("n"))
    log = SeriesLog(store.database)
    log.create("n", {})
    checks = 0
    check_held = module.check_held

    def restarted(connection, name) -> None:
        nonlocal checks
        checks += 1
        check_held(connection, name)
        if checks == 1:
            server.restart()  # in the middle of the transaction

    monkeypatch.setattr(module, "check_held", restarted)
    assert log.append("n", "decision", "n-1", {"promoted": True}, once=True)
    assert checks == 2
    assert [(e.sequence, e.study) for e in log.events("n")] == [(0, "n-1")]
    store.close()
    server.stop()


def test_an_event_whose_commit_was_lost_from_sight_is_not_appended_again(log, monkeypatch) -> None:
    transact = type(log._database).transact

    def twice(database, change):
        transact(database, change)  # committed, but the connection is lost before the answer
        return transact(database, change)

    monkeypatch.setattr(type(log._database), "transact", twice)
    assert log.append("n", "decision", "n-1", {}, once=True)
    assert [e.sequence for e in log.events("n")] == [0]
