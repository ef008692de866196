"""What steps take, read from trials that ended and from trials that failed."""

import pytest
from flash_worlds import counted_space
from worlds import ordered_space

from prefect_tune.optimizers import Evaluation, Failure, History, Query, Space, StepCost, Trial
from prefect_tune.optimizers.paths.step_seconds import RunningOrder, StepSeconds
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.trials.outcome import FailureKind

SPACE = counted_space((2, 2))


def cost(step: str, seconds: float, *, fold: int = 0, load: float | None = None) -> StepCost:
    """A step of a fold; a hit if it was loaded."""
    return StepCost(step, fold, seconds, load or 0.0, load is not None, f"{step}-{fold}")


def complete(
    number: int, path: tuple[str, ...], *costs: StepCost, seconds: float, **query: float
) -> Trial:
    folds = tuple(20.0 for _ in {c.fold for c in costs})
    outcome = Evaluation(20.0, folds, seconds, seconds, costs)
    asked = Query(default_configuration(SPACE, path), **query)  # type: ignore[arg-type]
    return Trial(number, asked).started().ended(outcome)


def failed(number: int, path: tuple[str, ...], failure: Failure, space: Space = SPACE) -> Trial:
    return Trial(number, Query(default_configuration(space, path))).started().failed(failure)


def tables(*trials: Trial, space: Space = SPACE) -> tuple[list[list[float]], float, float]:
    history = History()
    for trial in trials:
        history.record(trial)
    made, load, overhead = StepSeconds(space, RunningOrder(space)).tables(history)
    return [table.tolist() for table in made], load, overhead


def test_what_was_served_counts_as_what_it_once_took_and_the_rest_is_overhead() -> None:
    made, load, overhead = tables(
        complete(0, ("a0", "a0"), cost("step0", 8.0), cost("step1", 1.0), seconds=9.5),
        complete(1, ("a0", "a1"), cost("step0", 8.0, load=0.2), cost("step1", 3.0), seconds=3.7),
    )
    assert made == [[8.0, 8.0], [1.0, 3.0]]
    assert (load, overhead) == pytest.approx((0.2, 0.5))


def test_an_algorithm_that_never_ran_takes_what_others_of_its_step_do() -> None:
    made, _, _ = tables(
        complete(0, ("a0", "a0"), cost("step0", 8.0), cost("step1", 2.0), seconds=10.0)
    )
    assert made == [[8.0, 8.0], [2.0, 2.0]]


def test_a_model_that_ran_into_its_limit_after_a_cached_prefix_is_charged_its_limit() -> None:
    limit = Failure(FailureKind.TIMEOUT, "60 s", step="step1", cost_seconds=60.0)
    prefix = cost("step0", 30.0, load=0.0)
    known = complete(0, ("a0", "a0"), cost("step0", 30.0), cost("step1", 1.0), seconds=31.0)
    told = Failure(limit.kind, limit.message, step="step1", cost_seconds=60.0, steps=(prefix,))
    made, _, _ = tables(known, failed(1, ("a0", "a1"), told))
    assert made == [[30.0, 30.0], [1.0, 60.0]]
    # What an earlier version told has no steps: what others took before it is taken off.
    made, _, _ = tables(known, failed(1, ("a0", "a1"), limit))
    assert made == [[30.0, 30.0], [1.0, 30.0]]


def test_a_failure_charges_the_steps_that_had_ended_and_the_rest_to_the_one_that_failed() -> None:
    steps = (cost("fixed", 2.0), cost("step0", 5.0), cost("step0", 7.0, fold=1))
    told = Failure(
        FailureKind.ERROR, "it failed", step="step1", fold=0, cost_seconds=20.0, steps=steps
    )
    made, _, _ = tables(failed(0, ("a1", "a0"), told))
    assert made == [[12.0, 12.0], [6.0, 6.0]]
    unknown = Failure(FailureKind.CRASHED, "the worker died", cost_seconds=20.0, steps=steps)
    assert tables(failed(0, ("a1", "a0"), unknown))[0] == made
    fixed = Failure(FailureKind.ERROR, "it failed", step="fixed", cost_seconds=20.0)
    as_told = Failure(
        FailureKind.ERROR, "it failed", step="fixed", cost_seconds=20.0, steps=steps[:1]
    )
    assert tables(failed(0, ("a1", "a0"), fixed))[0][1] == [20.0, 20.0]
    assert tables(failed(0, ("a1", "a0"), as_told))[0] == [[0.0, 0.0], [0.0, 0.0]]


def test_a_fold_served_before_the_failure_counts_as_what_it_once_took() -> None:
    steps = (cost("step0", 3.0), cost("step1", 10.0, load=1.0))
    told = Failure(
        FailureKind.ERROR, "it failed", step="step1", fold=1, cost_seconds=24.0, steps=steps
    )
    made, load, _ = tables(failed(0, ("a0", "a0"), told))
    assert made[1] == [24.0 - 3.0 - 1.0 + 10.0] * 2
    assert load == 1.0


def test_a_trial_on_the_first_fold_counts_as_if_it_had_run_on_all() -> None:
    whole = [cost("step0", 4.0, fold=f) for f in range(3)] + [
        cost("step1", 1.0, fold=f) for f in range(3)
    ]
    made, _, _ = tables(
        complete(0, ("a0", "a0"), *whole, seconds=15.0),
        complete(1, ("a1", "a1"), cost("step0", 2.0), cost("step1", 5.0), seconds=7.0, folds=1),
    )
    assert made == [[12.0, 6.0], [3.0, 15.0]]


@pytest.mark.parametrize("less", [{"subset": 0.1}, {"epochs": 3}])
def test_a_trial_on_some_rows_or_epochs_does_not_count(less: dict[str, float]) -> None:
    whole = complete(0, ("a0", "a0"), cost("step0", 8.0), cost("step1", 2.0), seconds=10.0)
    part = complete(1, ("a1", "a1"), cost("step0", 0.1), cost("step1", 0.1), seconds=0.2, **less)
    assert tables(whole, part) == tables(whole)


def test_in_another_order_what_ran_before_the_failure_is_taken_off() -> None:
    space = ordered_space(2)
    path = ("b_before_a", "scale", "power", "tree")
    steps = (cost("b", 5.0),)
    told = Failure(FailureKind.ERROR, "it failed", step="a", cost_seconds=9.0, steps=steps)
    reader = StepSeconds(space, RunningOrder(space))
    trial = failed(0, path, told, space)
    assert [space.searched[k].name for k in reader.done_before_failure(trial)] == ["b"]
    old = Failure(FailureKind.ERROR, "it failed", step="a", cost_seconds=9.0)
    made, _, _ = tables(trial, failed(1, path, old, space), space=space)
    # Of the older one what b takes is not known, as nothing has ended: all is charged to a.
    assert made[1][1] == pytest.approx((4.0 + 9.0) / 2)
    assert made[2][2] == 5.0
    assert made[0] == [0.0, 0.0]  # choosing an order takes no time
    late = Failure(FailureKind.ERROR, "it failed", step="b", cost_seconds=9.0, steps=())
    assert reader.done_before_failure(failed(2, path, late, space)) == ()
