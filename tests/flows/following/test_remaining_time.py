"""When a search will end, by the bound that comes first."""

from typing import Any

import pytest

from prefect_tune.flows.progress import RemainingTime


def left(remaining: RemainingTime, now: float, **standing: Any) -> float | None:
    known = {"seconds_total": None, "trials_total": None, "n_ended": 0, "n_begun": 0}
    return remaining.seconds(now, **{**known, "n_running": 0, **standing})


def ended_at(*seconds: float) -> RemainingTime:
    remaining = RemainingTime(0.0)
    for each in seconds:
        remaining.ended(each)
    return remaining


def test_a_bound_on_time_is_what_the_clock_has_left_and_never_less_than_nothing() -> None:
    assert left(ended_at(), 10.0, seconds_total=60.0) == 50.0
    assert left(ended_at(), 70.0, seconds_total=60.0) == 0.0


def test_a_bound_on_trials_goes_by_the_rate_of_the_last_ones() -> None:
    remaining = ended_at(*range(100, 120))  # one a second of late, none before
    standing = {"trials_total": 50, "n_ended": 20, "n_begun": 20}
    assert left(remaining, 120.0, **standing) == pytest.approx(30 * 120 / 20)
    remaining.ended(120.0)
    standing |= {"n_ended": 21, "n_begun": 21}
    assert left(remaining, 120.0, **standing) == pytest.approx(29 * 1.0)


def test_the_rate_falls_while_nothing_ends() -> None:
    standing = {"trials_total": 4, "n_ended": 2, "n_begun": 3, "n_running": 1}
    assert left(ended_at(1, 2), 2.0, **standing) == 2.0
    assert left(ended_at(1, 2), 60.0, **standing) == 60.0


def test_whichever_bound_comes_first_counts() -> None:
    standing = {"trials_total": 4, "n_ended": 2, "n_begun": 2}
    assert left(ended_at(1, 2), 2.0, seconds_total=3.0, **standing) == 1.0
    assert left(ended_at(1, 2), 2.0, seconds_total=30.0, **standing) == 2.0


def test_nothing_can_be_said_without_a_bound_or_before_a_trial_has_ended() -> None:
    assert left(ended_at(1, 2), 2.0, n_ended=2, n_begun=2) is None
    assert left(ended_at(), 5.0, trials_total=4) is None


def test_a_configuration_takes_as_many_trials_as_those_before_it_did() -> None:
    standing = {"trials_total": 10, "n_ended": 6, "n_begun": 5, "n_running": 2}
    assert left(ended_at(1, 2, 3, 4, 5, 6), 6.0, **standing) == 10 * 2 - 6


def test_what_is_under_way_when_all_were_begun_is_still_to_come() -> None:
    standing = {"trials_total": 4, "n_ended": 4, "n_begun": 4, "n_running": 1}
    assert left(ended_at(1, 2, 3, 4), 4.0, **standing) == pytest.approx(4 * 4 / 3 - 4)
