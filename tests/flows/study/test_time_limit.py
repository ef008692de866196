"""Limits that follow what trials have taken."""

from dataclasses import replace

import numpy as np
import pytest
from worlds import mixed_space

from prefect_tune.flows.study.time_limit import TimeLimit
from prefect_tune.optimizers import Evaluation, Failure, Query, Trial
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind

QUERY = Query(sample_configuration(mixed_space(), np.random.default_rng(0)))
NEXT = Trial(99, QUERY)


def finished(seconds: float, loss: float = 1.0, query: Query = QUERY) -> Trial:
    """A trial that took so long without the cache, of which the cache has spared it a part."""
    return Trial(0, query).started().ended(Evaluation(loss, (), seconds / 10, seconds))


def limit_after(
    *trials: Trial, most: float = 900.0, n_folds: int = 1, is_adaptive: bool = True
) -> TimeLimit:
    limit = TimeLimit(most, n_folds, is_adaptive=is_adaptive)
    limit.follow(trials)
    return limit


def test_too_few_trials_say_nothing() -> None:
    limit = limit_after(*[finished(2.0)] * 4)
    assert limit.seconds(NEXT) == 900.0
    assert limit.note(NEXT) == ""


def test_it_is_twenty_times_the_median_of_those_that_finished() -> None:
    failed = Trial(0, QUERY).started().failed(Failure(FailureKind.TIMEOUT, "", cost_seconds=800.0))
    limit = limit_after(*[finished(2.0)] * 4, *[finished(3.0)] * 6, *[failed] * 50)
    assert limit.seconds(NEXT) == 60.0
    note = limit.note(NEXT)
    assert note.startswith("trials end after 1m00s now, 20 times the median of those")
    assert "37m30s" in note


@pytest.mark.parametrize(
    ("trials", "most", "expected"),
    [
        ([finished(0.1)] * 10, 900.0, 30.0),
        ([finished(100.0)] * 10, 900.0, 900.0),
        ([finished(0.1)] * 10, 20.0, 20.0),
        ([*[finished(1.0)] * 10, finished(50.0, loss=0.5)], 900.0, 100.0),
        ([*[finished(1.0)] * 10, finished(50.0, loss=1.5)], 900.0, 30.0),
    ],
    ids=["floor", "the plan's", "below the floor", "twice the best", "not the best"],
)
def test_it_is_neither_below_the_floor_nor_the_best_nor_above_the_plans(
    trials, most, expected
) -> None:
    assert limit_after(*trials, most=most).seconds(NEXT) == expected


def test_a_limit_of_the_users_stays() -> None:
    limit = limit_after(*[finished(0.1)] * 20, is_adaptive=False)
    assert limit.seconds(NEXT) == 900.0


def folds(n: int, seconds: float, loss: float = 1.0, n_folds: int | None = None) -> Trial:
    """A trial of n folds, each of which took so long."""
    query = replace(QUERY, folds=n_folds)
    return Trial(0, query).started().ended(Evaluation(loss, (loss,) * n, 0.0, n * seconds))


def test_a_trial_of_one_fold_has_the_time_of_one_fold() -> None:
    limit = limit_after(*[folds(5, 2.0)] * 10, n_folds=5)
    assert limit.seconds(NEXT) == 200.0
    first = Trial(99, replace(QUERY, folds=1))
    assert limit.seconds(first) == 40.0
    assert limit.note(first).startswith("trials end after 3m20s now (1 of 5 folds after 40s), 20")


def test_first_folds_of_those_that_were_stopped_count_as_much_as_whole_trials() -> None:
    limit = limit_after(folds(5, 40.0, loss=2.0), *[folds(1, 2.0, n_folds=1)] * 9, n_folds=5)
    assert limit.seconds(NEXT) == 5 * 2 * 40.0  # twice the best: those that were stopped are not
    limit.follow([folds(5, 3.0, loss=1.0)])
    assert limit.seconds(NEXT) == 5 * 20 * 2.0


@pytest.mark.parametrize(("seconds", "expected"), [(5.0, 60.0), (12.0, 72.0), (40.0, 150.0)])
def test_what_goes_on_has_half_as_much_again_as_its_other_folds_should_take(
    seconds, expected
) -> None:
    """Up to two and a half times the limit of the plan, which no other trial exceeds."""
    limit = limit_after(folds(1, seconds, n_folds=1), most=60.0, n_folds=5)
    assert limit.seconds(NEXT) == expected
    assert limit.seconds(Trial(99, replace(QUERY, folds=1))) == 60.0
    assert limit.fold_seconds == 60.0
    users = limit_after(folds(1, seconds, n_folds=1), most=60.0, n_folds=5, is_adaptive=False)
    assert users.seconds(NEXT) == 60.0


def test_parts_of_the_rows_do_not_count_and_have_the_time_of_all() -> None:
    part = Query(QUERY.configuration, subset=0.25)
    limit = limit_after(*[finished(0.1, query=part)] * 20)
    assert limit.seconds(NEXT) == 900.0
    limit.follow([finished(2.0)] * 10)
    assert limit.seconds(NEXT) == 40.0
    assert limit.seconds(Trial(99, part)) == 40.0


def test_parts_of_a_training_neither_count_nor_are_cut() -> None:
    part = Query(QUERY.configuration, epochs=3)
    limit = limit_after(*[finished(0.1, query=part)] * 20)
    assert limit.seconds(NEXT) == 900.0
    limit.follow([finished(0.1)] * 10)
    assert limit.seconds(NEXT) == 30.0
    assert limit.seconds(Trial(99, part)) == 900.0
