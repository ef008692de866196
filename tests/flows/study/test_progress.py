"""How far a search has come: what is left, and why nothing leads."""

from dataclasses import replace
from typing import Any

import pytest

from prefect_tune.flows.study.progress import Progress, RunningTrial, StudyTotals
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
