import threading

import pytest

from prefect_tune.storage import Ledger


@pytest.fixture
def ledger(store) -> Ledger:
    ledger = Ledger(store.database)
    assert ledger.create_study("s", {"metric": "error"}, {"trials": 3})
    return ledger


def trial(number: int, state: str = "waiting") -> dict:
    return {"number": number, "state": state}


def test_a_study_is_entered_once(ledger) -> None:
    assert not ledger.create_study("s", {}, {})
    record = ledger.study("s")
    assert (record.problem, record.settings, record.state) == (
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
