import threading
from dataclasses import replace

import pytest
from services import Postgres
from sqlalchemy import update

from prefect_tune.storage import ArtifactStore, Ledger, StoreAddress
from prefect_tune.storage import ledger as module
from prefect_tune.storage.lease import Holder, LeaseLost
from prefect_tune.storage.schema import lease_table


@pytest.fixture
def ledger(store) -> Ledger:
    ledger = Ledger(store.database)
    assert ledger.create_study("s", {"metric": "error"}, {"trials": 3})
    return ledger


def trial(number: int, state: str = "waiting") -> dict:
    return {"number": number, "state": state}


def test_a_study_is_entered_once(ledger) -> None:
    assert not ledger.create_study("s", {}, {})
    stored = ledger.study("s")
    assert (stored.problem, stored.settings, stored.state) == (
        {"metric": "error"},
        {"trials": 3},
        "new",
    )
    assert ledger.study("none") is None


def test_events_come_back_in_order_with_where_their_trials_stand(ledger) -> None:
    ledger.append("s", "ask", {"number": 0}, trial(0))
    ledger.append("s", "ask", {"number": 1}, trial(1))
    ledger.append("s", "tell", {"loss": 1.5}, trial(0, "complete"))
    assert [(e.sequence, e.kind) for e in ledger.events("s")] == [
        (0, "ask"),
        (1, "ask"),
        (2, "tell"),
    ]
    assert ledger.events("s")[2].body == {"loss": 1.5}
    assert [t["state"] for t in ledger.trials("s")] == ["complete", "waiting"]


def test_numbers_survive_to_the_last_digit(ledger) -> None:
    ledger.append("s", "tell", {"loss": 0.1 + 0.2}, trial(0))
    assert ledger.events("s")[0].body["loss"] == 0.1 + 0.2


def test_time_is_the_sum_of_all_sessions(ledger) -> None:
    for seconds in (2.0, 3.5):
        session = ledger.start_session("s")
        ledger.beat(session, seconds / 2)
        ledger.beat(session, seconds)
    assert ledger.study("s").seconds == 5.5


def test_a_removed_study_leaves_nothing(ledger) -> None:
    ledger.append("s", "ask", {}, trial(0))
    ledger.start_session("s")
    ledger.delete_study("s")
    assert ledger.study("s") is None
    assert ledger.events("s") == ledger.trials("s") == ledger.study_names() == []


def test_appending_from_many_threads_loses_nothing(ledger) -> None:
    def append(start: int) -> None:
        for number in range(start, start + 20):
            ledger.append("s", "ask", {"number": number}, trial(number))

    threads = [threading.Thread(target=append, args=(20 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = ledger.events("s")
    assert [e.sequence for e in events] == list(range(80))
    assert sorted(e.body["number"] for e in events) == list(range(80))


def test_who_has_lost_the_lease_of_a_study_changes_nothing_of_it(store) -> None:
    Ledger(store.database).create_study("s", {}, {})
    assert store.leases.acquire("study s")
    ledger = Ledger(store.database, lease="study s")
    ledger.append("s", "ask", {}, {"number": 0, "state": "waiting"})
    with store.database.write() as connection:  # as another process takes over what has expired
        other = replace(Holder.this_process(), pid=1).to_text()
        connection.execute(update(lease_table).values(holder=other))
    for change in (
        lambda: ledger.append("s", "ask", {}, {"number": 1, "state": "waiting"}),
        lambda: ledger.set_trial("s", {"number": 0, "state": "running"}),
        lambda: ledger.update_study("s", state="running"),
    ):
        with pytest.raises(LeaseLost, match="another one has taken over study s"):
            change()
    assert [t["state"] for t in ledger.trials("s")] == ["waiting"]
    assert len(ledger.events("s")) == 1


def test_only_the_last_memo_of_a_study_is_kept(ledger) -> None:
    assert ledger.memo("s") is None
    ledger.append("s", "ask", {"number": 0}, trial(0), {"walkers": [1.0]})
    ledger.append("s", "ask", {"number": 1}, trial(1), {"walkers": [2.0]})
    ledger.append("s", "tell", {"number": 0}, trial(0, "complete"))
    assert ledger.memo("s") == {"walkers": [2.0]}
    ledger.delete_study("s")
    assert ledger.memo("s") is None


def test_what_is_appended_while_the_database_is_restarted_is_there_once(
    tmp_path, monkeypatch
) -> None:
    server = Postgres(tmp_path / "postgres")
    address = StoreAddress(str(tmp_path / "store"), server.new_database())
    store = ArtifactStore(address)
    assert store.leases.acquire("study s")
    ledger = Ledger(store.database, lease="study s")
    assert ledger.create_study("s", {}, {})
    ledger.append("s", "ask", {"number": 0}, trial(0))
    n_restarts = 0
    enter = Ledger._set_trial

    def enter_after_a_restart(self, connection, study, entered) -> None:
        nonlocal n_restarts
        if n_restarts == 0:
            n_restarts += 1
            server.restart()  # in the middle of the transaction
        enter(self, connection, study, entered)

    monkeypatch.setattr(Ledger, "_set_trial", enter_after_a_restart)
    ledger.append("s", "tell", {"number": 0}, trial(0, "complete"))
    assert n_restarts == 1
    assert [(e.sequence, e.kind) for e in ledger.events("s")] == [(0, "ask"), (1, "tell")]
    assert [t["state"] for t in ledger.trials("s")] == ["complete"]
    store.close()
    server.stop()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_one_by_one_they_are_those_that_are_read_at_once(
    tmp_path, postgres, monkeypatch, database
) -> None:
    monkeypatch.setattr(module, "_ROWS_AT_ONCE", 3)
    url = postgres.new_database() if database == "postgresql" else ""
    store = ArtifactStore(StoreAddress(str(tmp_path / "store"), url))
    ledger = Ledger(store.database)
    assert list(ledger.each_event("s")) == list(ledger.each_trial("s")) == []
    for name in ("s", "other"):
        ledger.create_study(name, {}, {})
        for number in range(7 if name == "s" else 2):
            ledger.append(name, "ask", {"number": number}, trial(number))
    seen = 0
    for event in ledger.each_event("s"):
        assert ledger.memo("s") is None  # the connection is free meanwhile
        seen += event.kind == "ask"
    assert seen == 7
    assert list(ledger.each_event("s")) == ledger.events("s")
    assert list(ledger.each_trial("s")) == ledger.trials("s")
    store.close()


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_values_of_events_come_without_the_rest_of_them(tmp_path, postgres, database) -> None:
    url = postgres.new_database() if database == "postgresql" else ""
    store = ArtifactStore(StoreAddress(str(tmp_path / "store"), url))
    ledger = Ledger(store.database)
    ledger.create_study("s", {}, {})
    reason = {"phase": "a <b>", "text": "so"}
    ledger.append("s", "ask", {"number": 0, "reason": reason}, trial(0))
    ledger.append("s", "tell", {"number": 0, "seconds": 0.25, "best": None}, trial(0))
    ledger.append("s", "ask", {"number": 1}, trial(1))
    asked = ledger.event_values("s", "ask", ("number",), ("reason", "phase"))
    assert asked == [(0, "a <b>"), (1, None)]
    told = ledger.event_values("s", "tell", ("seconds",), ("best",), ("number",))
    assert told == [(0.25, None, 0)]
    store.close()
