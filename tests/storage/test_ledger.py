"""The ledger and series: ordered events, runs, and no changes after the lease is lost."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import pytest
from hammering import run_in_threads
from processes import wait_for
from services import Postgres
from sqlalchemy import event, text, update

from prefect_tune.storage import ledger as module
from prefect_tune.storage.artifacts import ArtifactStore, StoreAddress
from prefect_tune.storage.database import Database, DatabaseDamaged
from prefect_tune.storage.lease import LeaseBook, LeaseLost
from prefect_tune.storage.ledger import Ledger
from prefect_tune.storage.processes import ProcessIdentity
from prefect_tune.storage.schema import lease_table, series_run_table
from prefect_tune.storage.series import (
    Champion,
    Changes,
    Decision,
    Reused,
    Series,
    SeriesRun,
    SeriesTable,
    series_lease,
)


@pytest.fixture
def ledger(either_store) -> Ledger:
    ledger = Ledger(either_store.database)
    assert ledger.create_study("s", {"metric": "error"}, {"trials": 3})
    return ledger


def trial(number: int, state: str = "waiting") -> dict:
    return {"number": number, "state": state}


def test_events_are_returned_in_order_with_the_states_of_trials(ledger, monkeypatch) -> None:
    assert not ledger.create_study("s", {}, {})  # it is entered once
    stored = ledger.study("s")
    assert (stored.problem, stored.settings) == ({"metric": "error"}, {"trials": 3})
    ledger.create_study("other", {}, {})
    for number in range(5):
        ledger.append("s", "ask", {"number": number}, trial(number))
        ledger.append("other", "ask", {"number": number}, trial(number))
    ledger.append("s", "tell", {"loss": 0.1 + 0.2}, trial(0, "complete"))
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 3)
    events = []
    for one in ledger.each_event("s"):
        assert ledger.memo("s") is None  # the connection is free meanwhile
        events.append(one)
    assert [(e.sequence, e.kind) for e in events] == [*((n, "ask") for n in range(5)), (5, "tell")]
    assert events[5].body == {"loss": 0.1 + 0.2}  # to the last digit
    assert [t["state"] for t in ledger.trials("s")] == ["complete", *["waiting"] * 4]
    assert list(ledger.each_trial("s")) == ledger.trials("s")


def test_time_is_summed_over_sessions_and_only_the_last_memo_is_kept(ledger) -> None:
    for seconds in (2.0, 3.5):
        session = ledger.start_session("s")
        ledger.beat(session, seconds / 2)
        ledger.beat(session, seconds)
    assert ledger.study("s").seconds == 5.5
    for number in range(2):
        ledger.append("s", "ask", {}, trial(number), memo={"walkers": [number]})
    ledger.append("s", "tell", {}, trial(0, "complete"))
    assert ledger.memo("s") == {"walkers": [1]}
    ledger.delete_study("s")
    assert ledger.study("s") is ledger.memo("s") is None
    assert list(ledger.each_event("s")) == ledger.trials("s") == ledger.study_names() == []


def test_appending_from_many_threads_loses_nothing(ledger) -> None:
    def append(start: int) -> None:
        for number in range(start, start + 20):
            ledger.append("s", "ask", {"number": number}, trial(number))

    run_in_threads(*(partial(append, 20 * i) for i in range(4)))
    events = list(ledger.each_event("s"))
    assert [e.sequence for e in events] == list(range(80))
    assert sorted(e.body["number"] for e in events) == list(range(80))


@pytest.mark.full
@pytest.mark.slow
def test_event_appended_during_a_database_restart_is_stored_once(tmp_path, monkeypatch) -> None:
    server = Postgres(tmp_path / "postgres")
    store = ArtifactStore(StoreAddress(str(tmp_path / "store"), server.new_database()))
    assert store.leases.acquire("study s")
    ledger = Ledger(store.database, lease="study s")
    assert ledger.create_study("s", {}, {})
    ledger.append("s", "ask", {"number": 0}, trial(0))
    restarts = [server.restart]
    enter = Ledger._set_trial

    def enter_after_a_restart(*given) -> None:
        if restarts:
            restarts.pop()()  # in the middle of the transaction
        enter(*given)

    monkeypatch.setattr(Ledger, "_set_trial", enter_after_a_restart)
    ledger.append("s", "tell", {"number": 0}, trial(0, "complete"))
    assert not restarts
    assert [(e.sequence, e.kind) for e in ledger.each_event("s")] == [(0, "ask"), (1, "tell")]
    assert [t["state"] for t in ledger.trials("s")] == ["complete"]
    store.close()
    server.stop()


CHANGES = {
    "append": lambda ledger: ledger.append("s", "ask", {"by": "old"}, {"number": 0, "state": "w"}),
    "set_trial": lambda ledger: ledger.set_trial("s", {"number": 0, "state": "running"}),
    "update_study": lambda ledger: ledger.update_study("s", state="running"),
    "start_session": lambda ledger: ledger.start_session("s"),
    "beat": lambda ledger: ledger.beat(1, 5.0),
    "delete_study": lambda ledger: ledger.delete_study("s"),
}
OTHER = ProcessIdentity("another boot", 1, 1.0, "machine")


def test_process_that_lost_the_lease_cannot_change_the_study(either_store) -> None:
    Ledger(either_store.database).create_study("s", {}, {})
    asleep = LeaseBook(either_store.database, lease_seconds=-1.0)
    asleep.close()
    assert asleep.acquire("study s")
    ledger = Ledger(either_store.database, lease="study s")
    CHANGES["append"](ledger)  # it has expired, and nobody took it
    with either_store.database.write() as connection:  # as another process takes over
        connection.execute(update(lease_table).values(holder=OTHER.to_text()))
    for change in CHANGES.values():
        with pytest.raises(LeaseLost, match="study s"):
            change(ledger)
    assert [t["state"] for t in ledger.trials("s")] == ["w"]
    assert len(list(ledger.each_event("s"))) == 1


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_takeover_of_a_lease_waits_for_the_transaction_of_the_holder(
    address, postgres, change
) -> None:
    """Another process updates the holder on its own connection, as a takeover does."""
    address = replace(address, database=postgres.new_database())
    store, other = ArtifactStore(address), Database(address.database)
    old = Ledger(store.database, lease="study s")
    assert store.leases.acquire("study s")
    old.create_study("s", {}, {})
    committed, taken = [], []

    def take() -> None:
        with other.write() as connection:
            connection.execute(update(lease_table).values(holder=OTHER.to_text()))
            taken.append(list(committed))

    taker = threading.Thread(target=take)
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")

    def take_over(*about: object) -> None:
        if "FROM leases" in str(about[2]) and not taker.ident:  # the check of the lease
            taker.start()
            with lookout.read() as connection:
                wait_for(lambda: taken or connection.execute(waiting).scalar())

    with ExitStack() as closing:
        lookout = Database(address.database)
        for opened in (store, other, lookout):
            closing.callback(opened.close)
        event.listen(store.database.engine, "after_cursor_execute", take_over)
        event.listen(store.database.engine, "commit", lambda _: committed.append(change))
        CHANGES[change](old)
        taker.join(120)
        assert taken
        assert taken[0], "taken before the commit"
        with pytest.raises(LeaseLost, match="study s"):
            CHANGES[change](old)


SERIES = Series("n", 1.5, {"metric": "error"})
RUN = SeriesRun(
    study="n-1",
    number=1,
    at=2.0,
    rows=10,
    changes=Changes(rows_added=3, columns_differing=("exported",)),
    options={"folds": 4},
    reused=Reused(("n-0",), 5, 2, 0.5),
    decision=Decision(
        promoted=True, outcome="better", reason="so", model="m", compared={"p": 0.1 + 0.2}
    ),
)


@pytest.fixture
def table(either_store) -> Iterator[SeriesTable]:
    """The table of series, with the lease of the series `n`."""
    assert either_store.leases.acquire(series_lease("n"))
    yield SeriesTable(either_store.database)
    either_store.leases.release(series_lease("n"))


def test_series_is_read_back_as_written(table) -> None:
    assert (table.find("n"), table.names()) == (None, [])
    table.save(SERIES, RUN)
    champion = Champion("n-1", "champions/n/n-1/1", "test")
    second = replace(RUN, study="n-2", number=2, decision=None)
    table.save(replace(SERIES, champions=(champion,), n_tests=3), second)
    expected = replace(SERIES, champions=(champion,), n_tests=3, runs=(RUN, second))
    assert (table.find("n"), table.names()) == (expected, ["n"])
    table.save(SERIES, replace(second, rows=99))  # a run is there once
    assert [run.rows for run in table.find("n").runs] == [10, 99]
    table.delete("n")
    assert (table.find("n"), table.names()) == (None, [])


def test_promotions_keep_the_last_three_former_champions() -> None:
    series = replace(SERIES, n_tests=2)
    for number in (1, 2, 4, 5, 6, 4):
        series = series.with_champion(Champion(f"n-{number}", str(number), "rule"))
    assert [champion.study for champion in series.champions] == ["n-4", "n-6", "n-5", "n-2"]
    assert series.n_tests == 0


def test_process_without_the_lease_cannot_change_the_series(table, either_store) -> None:
    table.save(SERIES)
    with either_store.database.write() as connection:
        connection.execute(update(lease_table).values(holder=OTHER.to_text()))
    for change in (lambda: table.save(SERIES, RUN), lambda: table.delete("n")):
        with pytest.raises(LeaseLost, match="series n"):
            change()
    assert table.find("n") == SERIES


def test_error_names_a_damaged_run_of_a_series(table, either_store) -> None:
    table.save(SERIES, RUN)
    with either_store.database.write() as connection:
        connection.execute(update(series_run_table).values(body={"study": "n-1"}))
    with pytest.raises(DatabaseDamaged, match="--remove"):
        table.find("n")
