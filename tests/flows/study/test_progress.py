"""How far a search has come: what has led, what is left, and why nothing leads."""

from typing import Any

import pytest

from prefect_tune.deployments.views.live import block_curve
from prefect_tune.flows.study.progress import CurvePoint, IncumbentCurve, Progress, RemainingTime
from prefect_tune.flows.wording.text import Whole


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"n_trials": 2, "n_failed": 1, "n_stopped": 1}, "no trial has run in full yet"),
        ({"n_trials": 3, "n_failed": 1, "n_stopped": 1}, "no trial meets the constraints yet"),
    ],
)
def test_the_reason_for_no_leading_trial_is_shown(counts, said) -> None:
    progress = Progress(
        study="s", metric="error", n_running=0, trials_total=None, seconds=1.0,
        seconds_total=None, incumbent=None, cache_hits=0, seconds_saved=0.0,
        whole=Whole(None, None), **counts,
    )  # fmt: skip
    assert progress.best_line() == said


def test_what_leads_as_before_is_no_new_point() -> None:
    curve = IncumbentCurve()
    for seconds, loss in ((1.0, 30.0), (2.0, 30.0), (3.0, 20.0), (4.0, 20.0)):
        curve.add(seconds, loss)
    assert curve.points == ((1.0, 30.0), (3.0, 20.0))


def test_only_losses_of_as_much_as_the_last_one_are_compared_with_it() -> None:
    curve = IncumbentCurve()
    curve.add(1.0, 12.0, "subset 1/8")
    curve.add(2.0, 30.0, "subset 1/4")
    curve.add(3.0, 10.0, "subset 1/8")
    assert curve.points == ((1.0, 12.0), (3.0, 10.0))
    curve.add(4.0, 20.0)
    assert curve.points == ((4.0, 20.0),)


@pytest.mark.parametrize("losses", [[9.0], [9.0, 9.0], [40.0, 9.0, 3.0], [-1.0, -3.0], [0.0, 0.0]])
@pytest.mark.parametrize("end", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("width", [1, 2, 13])
def test_a_curve_fits_whatever_it_is_of_and_ends_at_what_leads(losses, end, width) -> None:
    points = [CurvePoint(float(at), loss) for at, loss in enumerate(losses)]
    drawn = block_curve(points, end, width)
    assert 1 <= len(drawn) <= width
    assert drawn[-1] == "▁"


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


def test_no_estimate_without_a_bound_or_before_a_trial_has_ended() -> None:
    assert left(ended_at(1, 2), 2.0, n_ended=2, n_begun=2) is None
    assert left(ended_at(), 5.0, trials_total=4) is None


def test_a_configuration_takes_as_many_trials_as_those_before_it_did() -> None:
    standing = {"trials_total": 10, "n_ended": 6, "n_begun": 5, "n_running": 2}
    assert left(ended_at(1, 2, 3, 4, 5, 6), 6.0, **standing) == 10 * 2 - 6


def test_what_is_under_way_when_all_were_begun_is_still_to_come() -> None:
    standing = {"trials_total": 4, "n_ended": 4, "n_begun": 4, "n_running": 1}
    assert left(ended_at(1, 2, 3, 4), 4.0, **standing) == pytest.approx(4 * 4 / 3 - 4)
