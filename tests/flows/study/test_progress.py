"""How far a search has come: what has led, what is left, and why nothing leads."""

from dataclasses import replace
from typing import Any

import pytest

from prefect_tune.deployments.views.live import block_curve
from prefect_tune.flows.study.progress import (
    CurvePoint,
    IncumbentCurve,
    Progress,
    RunningTrial,
    StudyTotals,
)
from prefect_tune.flows.wording.text import Whole

PROGRESS = Progress(
    study="s", metric="error", totals=StudyTotals(), trials_total=None, seconds=60.0,
    seconds_total=None, incumbent=None, whole=Whole(None, None),
)  # fmt: skip
RUNNING = (RunningTrial(0, (), 1.0, 9.0),)


@pytest.mark.parametrize(
    ("counts", "line"),
    [
        ({"told": 2, "failed": 1, "stopped": 1}, "no trial has run in full yet"),
        ({"told": 3, "failed": 1, "stopped": 1}, "no trial meets the constraints yet"),
    ],
)
def test_the_reason_for_no_leading_trial_is_shown(counts, line) -> None:
    assert replace(PROGRESS, totals=StudyTotals(**counts)).best_line() == line


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


def left(**standing: Any) -> float | None:
    return replace(PROGRESS, **standing).seconds_left


def test_the_end_is_at_the_bound_that_the_mean_rate_reaches_first() -> None:
    assert left(seconds_total=100.0) == 40.0
    assert left(seconds_total=50.0) == 0.0
    trials = {"trials_total": 10, "n_begun": 5, "running": RUNNING}
    assert left(**trials) == 6 * 60.0 / 4
    assert left(**trials, seconds_total=100.0) == 40.0


def test_no_end_is_known_without_a_bound_or_before_a_trial_has_ended() -> None:
    assert left(n_begun=2) is None
    assert left(trials_total=4, n_begun=1, running=RUNNING) is None
