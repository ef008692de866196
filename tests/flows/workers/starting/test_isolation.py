"""Trials whose workers died together run alone, one by one, whichever search they belong to."""

import pytest

from prefect_tune.flows.workers import dask_trials as isolation
from prefect_tune.flows.workers.dask_trials import Isolation


@pytest.fixture
def now(monkeypatch) -> list[float]:
    """The time of the isolation's clock; tests set it."""
    time = [1000.0]
    monkeypatch.setattr(isolation, "monotonic", lambda: time[0])
    return time


def suspects(*trials: tuple[int, int]) -> Isolation:
    """An isolation with suspects, none of them under way."""
    isolated = Isolation()
    for search, number in trials:
        assert not isolated.start(search, number)
    for search, number in trials:
        isolated.end(search, number, is_suspect=True)
    return isolated


def test_trials_run_side_by_side_without_a_common_death() -> None:
    isolated = Isolation()
    assert isolated.admits(1)
    assert not isolated.start(1, 0)
    assert isolated.admits(1)
    assert isolated.admits(2)
    assert not isolated.start(2, 0)
    isolated.end(1, 0)
    assert isolated.admits(1)


def test_a_suspect_waits_until_no_trial_runs_and_then_runs_alone() -> None:
    isolated = Isolation()
    isolated.start(1, 0)
    isolated.start(1, 1)
    isolated.end(1, 0, is_suspect=True)
    assert not isolated.admits(1)  # trial 1 still runs
    isolated.end(1, 1)
    assert isolated.admits(1)
    assert isolated.start(1, 0)
    assert not isolated.admits(1)


def test_suspects_run_one_by_one_until_each_has_ended() -> None:
    isolated = suspects((1, 0), (1, 1))
    for number in (0, 1):
        assert isolated.admits(1)
        assert isolated.start(1, number)
        assert not isolated.admits(1)
        isolated.end(1, number)
    assert isolated.admits(1)
    assert not isolated.start(1, 2)
    assert isolated.admits(1)


def test_one_search_at_a_time_may_start_a_suspect(now) -> None:
    isolated = suspects((1, 0), (2, 0))
    assert isolated.admits(1)
    assert not isolated.admits(2)
    assert isolated.admits(1)  # it still has its turn
    now[0] += isolation._TURN_SECONDS
    assert isolated.admits(2)
    assert not isolated.admits(1)


def test_a_search_that_starts_no_more_trials_holds_up_no_other() -> None:
    isolated = suspects((1, 0))
    isolated.start(1, 0)
    isolated.forget(1)
    assert isolated.admits(2)
    assert not isolated.start(2, 0)
    assert isolated.admits(2)
    isolated.start(3, 0)
    isolated.end(2, 0, is_suspect=True)
    isolated.forget(3)
    assert isolated.admits(2)


def test_forgetting_a_search_keeps_the_trials_of_others() -> None:
    isolated = suspects((1, 0), (2, 0))
    isolated.start(2, 0)
    isolated.forget(1)
    assert not isolated.admits(3)
    isolated.end(2, 0, is_suspect=True)
    assert isolated.admits(3)
    assert isolated.start(3, 0)
