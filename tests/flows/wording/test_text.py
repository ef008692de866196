"""Words for losses, fidelities, progress and failures, identical in every view of a study."""

import logging
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from worlds import mixed_space

from prefect_tune.flows.study import progress
from prefect_tune.flows.study.progress import Progress, RunningTrial, StudyTotals
from prefect_tune.flows.wording.text import (
    FailureGroups,
    Whole,
    counts_text,
    failure_text,
    number_text,
)
from prefect_tune.optimizers import Evaluation, Failure, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")), folds=1)
TRIAL = Trial(4, QUERY).started().completed(Evaluation(0.12, cost_seconds=2.0))
FAILURE = Failure(FailureKind.ERROR, "no rows", step="model", fold=2)
PROGRESS = Progress(
    study="s", metric="auroc", trials_total=9, seconds=60.0, seconds_total=None, incumbent=TRIAL,
    totals=StudyTotals(told=3, failed=1, partial=1, cache_hits=7, seconds_saved=-2.0),
    whole=Whole(folds=3, epochs=None),
)  # fmt: skip


def test_lines_of_a_study_have_losses_units_and_fidelities(
    monkeypatch, caplog, file_regression
) -> None:
    monkeypatch.setattr(progress, "get_run_logger", lambda: logging.getLogger("log"))
    nothing = replace(PROGRESS, incumbent=None)
    with caplog.at_level(logging.INFO, "log"):
        for trial in (TRIAL, Trial(5, QUERY).started().failed(FAILURE)):
            progress.LoggingObserver().ended(trial, PROGRESS)
    lines = [
        PROGRESS.best_line(),
        PROGRESS.status_line(),
        replace(PROGRESS, metric="error").trial_line(TRIAL),
        replace(nothing, totals=StudyTotals(told=2, failed=1, partial=1)).best_line(),
        nothing.best_line(),
        counts_text(6, 9, 4, 2, limit=10),
        counts_text(1, 1, 0, 0),
        failure_text(FAILURE),
        failure_text(replace(FAILURE, step=None, fold=None)),
        " ".join(map(number_text, (1 / 3, 123_456.0, inf, nan, None))),
        number_text(1.5, is_signed=True),
        *caplog.messages,
    ]
    file_regression.check("\n".join(lines) + "\n", extension=".txt")


@pytest.mark.parametrize(
    ("standing", "seconds"),
    [
        ({"seconds_total": 100.0}, 40.0),
        ({"seconds_total": 50.0}, 0.0),
        ({"trials_total": 10, "n_begun": 5}, 6 * 60.0 / 4),
        ({"trials_total": 10, "n_begun": 5, "seconds_total": 100.0}, 40.0),
        ({"n_begun": 2}, None),
        ({"trials_total": 4, "n_begun": 1}, None),
    ],
)
def test_predicted_end_is_the_limit_reached_first_at_the_mean_rate(standing, seconds) -> None:
    given: dict[str, Any] = {"trials_total": None, "running": (RunningTrial(0, (), 1.0, 9.0),)}
    assert replace(PROGRESS, **{**given, **standing}).seconds_left == seconds


def error(message: str, step: str = "model", kind: str = "error") -> Failure:
    traceback = "x" * 10**6 + "end"
    return Failure(FailureKind(kind), message, step=step, cost_seconds=1.5, traceback=traceback)


def test_failures_are_grouped_by_kind_and_step_despite_different_numbers() -> None:
    """Long messages keep their beginning, and tracebacks their end."""
    groups = FailureGroups()
    secret = "x" * 1_980 + "postgresql://me:s3cret@host/d" + "y" * 10**6
    for number, failure in enumerate([
        error("took more than 1 s"), error("took more than 2.5 s"), error("no rows"),
        error("took more than 1 s", step="scale"), error("took more than 1 s", kind="timeout"),
        error(secret), error(secret + "z"),
    ]):  # fmt: skip
        groups.add(number, failure)
    found = groups.found()
    assert [group.trials for group in found] == [[0, 1], [5, 6], [2], [3], [4]]
    assert (found[0].text, found[0].seconds) == ("model: took more than 1 s", 3.0)
    assert len(groups) == 7
    assert 2_000 <= len(found[1].message) <= 2_001
    assert "s3c" not in found[1].message  # masked before it is cut
    assert len(found[1].traceback) == 20_000
    assert found[1].traceback.endswith("end")
