from time import monotonic, sleep

import pytest

from prefect_tune.storage.waiting.outage import (
    OUTAGE_VARIABLE,
    Waits,
    begin,
    outage_seconds,
    through_outage,
    waiting,
    waits_counted,
)


class Away:
    """A service that is away for some calls, each of which takes a moment."""

    def __init__(self, n_calls: int, seconds: float = 0.05) -> None:
        self.n_left, self.n_calls, self.seconds = n_calls, 0, seconds

    def __call__(self) -> str:
        self.n_calls += 1
        sleep(self.seconds)
        if self.n_left:
            self.n_left -= 1
            raise ConnectionError(f"away at postgresql://me:secret@here for {self.n_left} more")
        return "here"


def is_outage(error: BaseException) -> bool:
    return isinstance(error, ConnectionError)


def test_a_service_that_comes_back_is_waited_for(caplog) -> None:
    service = Away(3)
    assert through_outage(service, is_outage) == "here"
    assert service.n_calls == 4
    (said,) = caplog.messages  # once, however often it was tried
    assert said == "waiting at most 300 s: away at postgresql://me:***@here for 2 more"


def test_one_that_stays_away_ends_in_its_error(monkeypatch) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.5")
    service = Away(1_000_000)
    with pytest.raises(ConnectionError):
        through_outage(service, is_outage)
    assert service.n_calls > 1


def test_what_was_waited_out_inside_of_a_call_is_not_waited_for_again(monkeypatch) -> None:
    monkeypatch.setenv(OUTAGE_VARIABLE, "0.3")
    outer_calls = []

    def outer() -> None:
        outer_calls.append(1)
        try:
            through_outage(Away(1_000_000), is_outage)
        except ConnectionError as error:
            raise ConnectionError("the store is away") from error

    with pytest.raises(ConnectionError, match="the store is away"):
        through_outage(outer, is_outage)
    assert outer_calls == [1]


def test_other_errors_are_raised_at_once() -> None:
    calls = []

    def broken() -> None:
        calls.append(1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        through_outage(broken, is_outage)
    assert calls == [1]


def test_what_was_in_vain_counts_as_waiting_and_the_last_call_does_not() -> None:
    service = Away(2, seconds=0.2)
    with waits_counted():
        begun = begin()
        started = monotonic()
        through_outage(service, is_outage)
        elapsed = monotonic() - started
        own = begun.own_seconds()
    assert own == pytest.approx(0.2, abs=0.15)  # of at least 0.6 s and the pauses
    assert elapsed > own + 0.4


def test_a_wait_inside_of_a_call_in_vain_counts_once() -> None:
    n_calls = 0

    def waits() -> None:
        nonlocal n_calls
        n_calls += 1
        with waiting():
            sleep(0.2)
        if n_calls == 1:
            raise ConnectionError

    with waits_counted():
        begun = begin()
        through_outage(waits, is_outage)
        assert -0.01 < begun.own_seconds() < 0.2


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


def test_nothing_is_counted_where_nobody_asks() -> None:
    with waiting():
        sleep(0.05)
    assert begin().own_seconds() < 0.05


def test_the_longest_outage_is_five_minutes_or_the_users_choice(monkeypatch) -> None:
    monkeypatch.delenv(OUTAGE_VARIABLE, raising=False)
    assert outage_seconds() == 300
    monkeypatch.setenv(OUTAGE_VARIABLE, "12")
    assert outage_seconds() == 12
