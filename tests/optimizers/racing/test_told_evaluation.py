from dataclasses import replace

import pytest

from prefect_tune.optimizers import Evaluation, Failure, Objective, StepCost
from prefect_tune.optimizers.racing.rules import as_on_all_rows, estimated, failed_later, joined
from prefect_tune.optimizers.trials.outcome import FailureKind

INCUMBENT = Evaluation(20.0, (16.0, 20.0, 24.0), 3.0, 3.0)


def step(name: str, fold: int, seconds: float, *, hit: bool = False) -> StepCost:
    return StepCost(name, fold, seconds, 0.01 * hit, hit, f"{name} {fold}")


def test_the_estimate_is_the_incumbents_mean_plus_the_difference_seen_on_the_first_fold() -> None:
    first = Evaluation(27.0, (27.0,), 1.5, 1.5, constraints={"latency_us": 7.0})
    told = estimated(first, INCUMBENT, Objective())
    assert told.loss == pytest.approx(20.0 + (27.0 - 16.0))  # and not the 27 that were seen
    assert told.fold_losses == (27.0, 31.0, 35.0)
    assert told.cost_seconds == 1.5
    assert told.constraints == {"latency_us": 7.0}


def test_an_estimate_may_be_of_another_difference_than_that_on_the_first_fold() -> None:
    look = Evaluation(30.0, (30.0,))
    assert estimated(look, INCUMBENT, Objective(), 2.5).loss == pytest.approx(22.5)
    assert estimated(look, INCUMBENT, Objective(), 0.0).loss == pytest.approx(20.0)


def test_steps_on_a_part_of_the_rows_are_scaled_to_all_and_what_was_spent_stays() -> None:
    look = Evaluation(30.0, (30.0,), 2.0, 2.0, steps=(step("pca", 0, 0.5), step("svm", 0, 1.25)))
    told = as_on_all_rows(look, 1 / 4)
    assert [cost.seconds for cost in told.steps] == [2.0, 5.0]
    assert told.cost_seconds == 2.0
    assert as_on_all_rows(look, 1.0) == look


def test_an_estimate_stays_within_the_bounds_of_the_metric() -> None:
    told = estimated(Evaluation(95.0, (95.0,)), INCUMBENT, Objective(upper=100.0))
    assert told.fold_losses == (95.0, 99.0, 100.0)
    assert told.loss == pytest.approx(98.0)


def test_of_one_that_went_on_both_stretches_cost_and_each_step_counts_as_it_was_made() -> None:
    first = Evaluation(18.0, (18.0,), 2.0, 2.0, steps=(step("pca", 0, 0.5), step("svm", 0, 1.4)))
    whole = Evaluation(
        19.0,
        (18.0, 19.0, 20.0),
        3.5,
        5.4,
        steps=(
            step("pca", 0, 0.5, hit=True),
            step("pca", 1, 0.6),
            step("svm", 0, 1.4, hit=True),
            step("svm", 1, 1.5),
        ),
        resumed_from=1,
    )
    told = joined(first, whole)
    assert told.cost_seconds == pytest.approx(5.5)
    assert told.cost_uncached_seconds == 5.4
    assert told.loss == 19.0
    assert told.resumed_from == 0
    assert [(s.step, s.fold, s.hit) for s in told.steps] == [
        ("pca", 0, False),
        ("pca", 1, False),
        ("svm", 0, False),
        ("svm", 1, False),
    ]


def test_a_step_that_others_had_made_before_stays_served() -> None:
    served = step("pca", 0, 0.5, hit=True)
    first = Evaluation(18.0, (18.0,), 2.0, 2.0, steps=(served,))
    whole = Evaluation(18.0, (18.0,), 1.0, 1.0, steps=(replace(served, load_seconds=0.3),))
    assert joined(first, whole).steps == (served,)


def test_a_failure_after_the_first_fold_costs_that_fold_too() -> None:
    first = Evaluation(18.0, (18.0,), 2.0, 2.0, steps=(step("pca", 0, 0.5),))
    failure = Failure(
        FailureKind.TIMEOUT, "10 s", cost_seconds=10.0, steps=(step("pca", 0, 0.5, hit=True),)
    )
    told = failed_later(first, failure)
    assert (told.kind, told.cost_seconds) == ("timeout", 12.0)
    assert told.steps == first.steps


def test_a_failure_that_says_no_steps_keeps_those_of_the_first_fold() -> None:
    first = Evaluation(18.0, (18.0,), 2.0, 2.0, steps=(step("pca", 0, 0.5), step("svm", 0, 1.4)))
    assert (
        failed_later(first, Failure(FailureKind.CRASHED, "", cost_seconds=1.0)).steps == first.steps
    )
    began = Failure(
        FailureKind.TIMEOUT, "", steps=(step("pca", 0, 0.5, hit=True), step("pca", 1, 0.6))
    )
    told = failed_later(first, began).steps
    assert sorted((s.step, s.fold, s.hit) for s in told) == [
        ("pca", 0, False),
        ("pca", 1, False),
        ("svm", 0, False),
    ]
