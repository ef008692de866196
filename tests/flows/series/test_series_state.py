"""The state of a series is a fold over its events, which only one run at a time appends."""

import pytest

from prefect_tune.flows.series.series import HeldSeries, SeriesBusy, held_series, open_series
from prefect_tune.optimizers import UnknownName
from prefect_tune.storage import ArtifactStore, StoreAddress
from prefect_tune.storage.lease import LeaseLost


@pytest.fixture
def held(tmp_path) -> HeldSeries:
    """The series `n`, held by this process."""
    store = ArtifactStore(StoreAddress(str(tmp_path / "store")))
    held = HeldSeries.acquire(store, "n")
    held.create({"metric": "error"})
    return held


def run(held: HeldSeries, number: int, *, is_promoted: bool | None = None) -> None:
    """Record a run, and perhaps a decision on its model."""
    held.append_run(f"n-{number}", {"number": number, "rows": 10 * number})
    if is_promoted is not None:
        held.append_decision(f"n-{number}", {"promoted": is_promoted, "reason": "so"})


def test_promotions_keep_the_last_three_former_champions(held) -> None:
    for number in range(1, 7):
        run(held, number, is_promoted=number != 3)
    series = held.read()
    assert (series.champion, series.former) == ("n-6", ("n-5", "n-4", "n-2"))
    assert series.kept == {"n-6", "n-5", "n-4", "n-2"}
    assert series.since_promotion == 0


def test_decisions_count_since_the_champion_changed(held) -> None:
    run(held, 1, is_promoted=True)
    for number in (2, 3):
        run(held, number, is_promoted=False)
    assert held.read().since_promotion == 2
    held.append_champion("n-2", "promote", {})
    assert (held.read().champion, held.read().since_promotion) == ("n-2", 0)


def test_a_rollback_forgets_newer_champions(held) -> None:
    for number in (1, 2, 3):
        run(held, number, is_promoted=True)
    held.append_champion("n-2", "rollback", {})
    assert (held.read().champion, held.read().former) == ("n-2", ("n-1",))
    held.append_champion("n-3", "promote", {})
    assert (held.read().champion, held.read().former) == ("n-3", ("n-2", "n-1"))
    by_hand = [(change.study, change.action) for change in held.read().by_hand]
    assert by_hand == [("n-2", "rollback"), ("n-3", "promote")]


def test_a_study_is_decided_on_once(held) -> None:
    run(held, 1, is_promoted=True)
    assert not held.append_decision("n-1", {"promoted": False})
    assert held.read().champion == "n-1"


def test_the_result_of_the_latest_session_counts(held) -> None:
    held.append_run("n-1", {"number": 1, "reused": {"studies": ["n-0"], "observations": 5}})
    assert (held.read().last.state, held.read().last.loss) == ("new", None)
    body = {"state": "interrupted", "loss": 0.5, "test_loss": None, "prior_weight": None}
    held.append_ended("n-1", body)
    held.append_ended("n-1", {**body, "state": "complete", "loss": 0.25, "prior_weight": 0.5})
    last = held.read().last
    assert (last.state, last.loss, last.reused.weight) == ("complete", 0.25, 0.5)
    assert last.reused.observations == 5


def test_a_run_that_was_recorded_twice_counts_once(held) -> None:
    run(held, 1)
    held.append_run("n-1", {"number": 1, "rows": 99})  # the first process died before its study
    assert [(r.study, r.rows) for r in held.read().runs] == [("n-1", 99)]


def test_events_of_later_versions_change_nothing(held) -> None:
    run(held, 1)
    before = held.read()
    held._log.append("n", "renamed", "n-1", {})
    assert held.read() == before


def test_a_series_is_held_by_one_run_at_a_time(held) -> None:
    with pytest.raises(SeriesBusy, match="process"):
        HeldSeries.acquire(held.store, "n")
    held.release()
    with pytest.raises(LeaseLost):
        held.append_skipped("n-1", "late")
    with held_series(held.store, "n") as again:
        held.release()  # a second time, which must not release what another run holds
        again.append_skipped("n-1", "nothing changed")
    assert [s.study for s in open_series(held.store, "n").skipped] == ["n-1"]


def test_an_unknown_series_is_named(held) -> None:
    with pytest.raises(UnknownName, match="'m'"), held_series(held.store, "m"):
        pass
