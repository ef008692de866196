"""Words for losses, fidelities and failures, the same wherever a study is shown."""

import logging
from dataclasses import replace
from math import inf, nan

import pytest
from worlds import mixed_space

from prefect_tune.flows.study import progress
from prefect_tune.flows.study.progress import Progress, StudyTotals
from prefect_tune.flows.wording.text import (
    FailureGroups,
    Whole,
    counts_text,
    failure_text,
    number_text,
    saved_text,
)
from prefect_tune.optimizers import Evaluation, Failure, Query, Trial
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind

QUERY = Query(default_configuration(mixed_space(), ("unit", "svm")), folds=1)
TRIAL = Trial(4, QUERY).started().completed(Evaluation(0.12, cost_seconds=2.0))
FAILURE = Failure(FailureKind.ERROR, "no rows", step="model")
PROGRESS = Progress(
    study="s", metric="auroc", trials_total=9, seconds=5.0, seconds_total=None, incumbent=TRIAL,
    totals=StudyTotals(told=3, failed=1, stopped=1, cache_hits=7, seconds_saved=-2.0),
    whole=Whole(folds=3, epochs=None),
)  # fmt: skip


@pytest.mark.parametrize("line", [PROGRESS.best_line(), PROGRESS.status_line()])
def test_a_live_loss_has_its_own_name_and_the_part_that_it_is_of(line) -> None:
    assert line.startswith("best 1 - auroc 0.12 (folds 1 of 3)")


@pytest.mark.parametrize("trial", [TRIAL, Trial(5, QUERY).started().failed(FAILURE)])
def test_the_log_has_the_line_of_each_trial_and_the_best_loss(monkeypatch, caplog, trial) -> None:
    monkeypatch.setattr(progress, "get_run_logger", lambda: logging.getLogger("log"))
    with caplog.at_level(logging.INFO, "log"):
        progress.LoggingObserver().ended(trial, PROGRESS)
    assert PROGRESS.trial_line(trial) in caplog.text
    assert "best 1 - auroc 0.12 (folds 1 of 3)" in caplog.text


@pytest.mark.parametrize(("metric", "loss"), [("auroc", "0.12"), ("error", "0.12 %")])
def test_a_line_of_a_trial_has_its_loss_with_the_unit(metric, loss) -> None:
    line = replace(PROGRESS, metric=metric).trial_line(TRIAL)
    assert f"  {loss} " in line
    assert line.endswith("unit > svm (folds 1 of 3)")


def test_no_fewer_than_no_seconds_are_saved() -> None:
    assert saved_text(-2.0) == "0.0s"
    assert PROGRESS.status_line().endswith("0.0s saved")


def test_numbers_have_four_digits_and_what_is_none_has_a_dash() -> None:
    numbers = (1 / 3, 123_456.0, inf, nan, None)
    assert [*map(number_text, numbers)] == ["0.3333", "123,456", "inf", "-", "-"]
    assert number_text(1.5, is_signed=True) == "+1.5"


def test_counts_add_up_to_all_trials() -> None:
    assert counts_text(9, 4, 2) == "9 trials: 3 full, 4 partial, 2 failed"
    assert counts_text(1, 0, 0) == "1 trial, 0 failed"


def error(message: str, step: str | None = "model", kind: str = "error") -> Failure:
    return Failure(FailureKind(kind), message, step=step, cost_seconds=1.5)


def test_a_failure_is_named_with_its_place() -> None:
    assert failure_text(replace(error("no rows"), fold=2)) == "model, fold 2: no rows"
    assert failure_text(error("no rows")) == "model: no rows"
    assert failure_text(error("died", step=None)) == "died"


def test_failures_of_one_kind_and_step_are_one_group_whatever_their_numbers() -> None:
    groups = FailureGroups()
    for number, failure in enumerate([
        error("took more than 1 s"), error("took more than 2.5 s"), error("no rows"),
        error("took more than 1 s", step="scale"), error("took more than 1 s", kind="timeout"),
    ]):  # fmt: skip
        groups.add(number, failure)
    assert [group.trials for group in groups.found()] == [[0, 1], [2], [3], [4]]
    first = groups.found()[0]
    assert (first.text, first.seconds) == ("model: took more than 1 s", 3.0)
    assert len(groups) == 5


def test_passwords_and_endless_messages_are_shown_in_no_group() -> None:
    groups = FailureGroups()
    groups.add(0, error("postgresql://user:s3cret@host/db " + "x" * 10_000))
    (group,) = groups.found()
    assert "s3cret" not in group.text
    assert len(group.text) < 2_100
