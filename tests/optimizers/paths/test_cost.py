import numpy as np
import pytest
from flash_worlds import counted_space, steps_of
from worlds import ordered_space

from prefect_tune.optimizers import (
    Configuration,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Query,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration


@pytest.mark.parametrize("is_cached", [True, False])
def test_what_is_held_is_counted_at_its_load_time(is_cached: bool) -> None:
    space = counted_space((2, 2))
    history, seen = History(), set[str]()
    paths = list(space.paths())
    seconds = {"step0.a0": 10.0, "step0.a1": 8.0, "step1.a0": 1.0, "step1.a1": 2.0}
    for number, i in enumerate([0, 1, 3]):
        query = Query(default_configuration(space, paths[i]))
        outcome = steps_of(query, seen, seconds)
        if not is_cached:
            seen.clear()
        history.record(Trial(number, query).started().completed(outcome))
    is_new = np.array([False, False, True, False])
    predicted = PathCost(space, paths).seconds(history, is_new)
    held = 0.01 if is_cached else 8.0
    # Paths that ran with their defaults will draw new values, and nothing of them is held.
    assert predicted == pytest.approx([10 + 1, 10 + 2, held + 1, 8 + 2])
    # A model is always made, though all before it may be held.
    again = PathCost(space, paths).seconds(history, np.ones(4, dtype=np.bool_))
    first, second = (0.01, 0.01) if is_cached else (10.0, 8.0)
    assert again == pytest.approx([first + 1, first + 2, second + 1, second + 2])


def test_a_candidate_whose_preparation_was_made_costs_its_model_alone() -> None:
    space = counted_space((2, 2))
    rng, history, seen = np.random.default_rng(0), History(), set[str]()
    seconds = {"step0.a0": 8.0, "step0.a1": 8.0, "step1.a0": 1.0, "step1.a1": 1.0}
    ran = [sample_configuration(space, rng, path) for path in space.paths()]
    for number, configuration in enumerate([*ran, ran[0]]):
        query = Query(configuration)
        history.record(Trial(number, query).started().completed(steps_of(query, seen, seconds)))
    other = sample_configuration(space, rng, ran[0].path)
    mixed = Configuration((ran[0].choices[0], other.choices[1]))
    candidates = CandidateSpace(space)
    predicted = PathCost(space, list(space.paths())).of_candidates(history, candidates)
    encoded = candidates.encode([mixed, other])
    assert predicted(encoded, candidates.features(encoded)) == pytest.approx([0.01 + 1, 8 + 1])


def test_a_failure_costs_the_step_that_failed_and_leaves_what_was_before_it() -> None:
    space = counted_space((2, 2))
    history, seen, paths = History(), set[str](), list(space.paths())
    seconds = {"step0.a0": 8.0, "step0.a1": 4.0, "step1.a0": 1.0}
    for number, i in enumerate([0, 2]):
        query = Query(default_configuration(space, paths[i]))
        history.record(Trial(number, query).started().completed(steps_of(query, seen, seconds)))
    query = Query(default_configuration(space, paths[1]))  # (a0, a1): 8 s, then 2 s until it failed
    failure = Failure(FailureKind.ERROR, "it failed", step="step1", cost_seconds=10.0)
    history.record(Trial(2, query).started().failed(failure))
    cost = PathCost(space, paths)
    assert cost.seconds(history, None) == pytest.approx([8 + 1, 8 + 2, 4 + 1, 4 + 2])
    alone = History()
    alone.record(Trial(0, query).started().failed(failure))
    held = cost.seconds(alone, np.ones(4, dtype=np.bool_))
    assert held[0] < held[2]  # the first step of (a0, ...) was made


def test_where_the_order_is_a_choice_what_is_held_is_what_ran_first() -> None:
    space, seconds = ordered_space(2), {"a": 8.0, "b": 6.0, "model": 1.0}
    ran = ("b_before_a", "scale", "power", "tree")
    query = Query(default_configuration(space, ran))
    costs = tuple(
        StepCost(step.name, 0, seconds[step.name], 0.0, False, step.name)
        for step, _ in space.pipeline(ran)
    )
    history = History()
    history.record(Trial(0, query).started().completed(Evaluation(20.0, (20.0,), 15, 15, costs)))
    others = [
        (("b_before_a", "scale", "power", "bayes"), 1.0),  # all but the model is there
        (("b_before_a", "power", "power", "tree"), 8.0 + 1.0),  # b ran first: it is there
        (("b_before_a", "scale", "scale", "tree"), 15.0),  # another b: nothing of a is there
        (("a_before_b", "scale", "power", "tree"), 15.0),  # a on other data, and b on it
        # Without a, b is the first again; an algorithm never seen takes what others do.
        (("a_before_b", "none", "power", "tree"), 8.0 + 1.0),
    ]
    paths = [path for path, _ in others]
    cost = PathCost(space, paths)
    expected = [seconds for _, seconds in others]
    assert cost.seconds(history, np.ones(len(paths), dtype=np.bool_)) == pytest.approx(expected)
    candidates = CandidateSpace(space)
    encoded = candidates.encode(default_configuration(space, path) for path in paths)
    predicted = cost.of_candidates(history, candidates)
    assert predicted(encoded, candidates.features(encoded)) == pytest.approx(expected)


def test_steps_that_ended_before_a_failure_are_held() -> None:
    space = ordered_space(2)
    ran = ("b_before_a", "scale", "power", "tree")
    steps = (StepCost("b", 0, 6.0, 0.0, False, "b"),)
    told = Failure(FailureKind.ERROR, "it failed", step="a", cost_seconds=10.0, steps=steps)
    history = History()
    history.record(Trial(0, Query(default_configuration(space, ran))).started().failed(told))
    cost = PathCost(space, [ran, ("a_before_b", *ran[1:])])
    with_b, without = cost.seconds(history, np.ones(2, dtype=np.bool_))
    assert without - with_b == pytest.approx(6.0)


@pytest.mark.parametrize("is_failed", [False, True])
def test_what_ended_in_its_first_fold_is_not_held_on_the_others(is_failed: bool) -> None:
    space, names = counted_space((2, 2)), ("step0", "step1")
    paths, history = list(space.paths()), History()
    for number, (i, folds) in enumerate([(0, 2), (3, 1)]):
        query = Query(default_configuration(space, paths[i]))
        steps = tuple(
            StepCost(name, fold, 4.0, 0.0, False, f"{i} {name} {fold}")
            for name in names
            for fold in range(folds)
        )
        trial = Trial(number, query).started()
        if is_failed and folds == 1:
            failure = Failure(
                FailureKind.ERROR, "no", step="step1", cost_seconds=8.0, steps=steps[:1]
            )
            history.record(trial.failed(failure))
        else:
            history.record(trial.completed(Evaluation(20.0, (20.0, 20.0), 8.0, 8.0, steps)))
    cost = PathCost(space, paths)
    predicted = cost.seconds(history, np.ones(4, dtype=np.bool_))
    assert predicted[2] - predicted[0] == pytest.approx(8.0)
    candidates = CandidateSpace(space)
    encoded = candidates.encode(default_configuration(space, path) for path in paths)
    of_candidates = cost.of_candidates(history, candidates)
    predicted = of_candidates(encoded, candidates.features(encoded))
    assert predicted[2] - predicted[0] == pytest.approx(8.0)


def test_the_typical_seconds_are_those_of_all_paths_with_nothing_cached() -> None:
    space, history = counted_space((2, 2)), History()
    seconds = {"step0.a0": 10.0, "step0.a1": 8.0, "step1.a0": 1.0, "step1.a1": 2.0}
    for number, path in enumerate(space.paths()):
        query = Query(default_configuration(space, path))
        history.record(Trial(number, query).started().completed(steps_of(query, set(), seconds)))
    assert PathCost(space, list(space.paths())).typical_seconds(history) == pytest.approx(10.5)


def test_what_is_outside_of_the_steps_is_taken_by_each_run() -> None:
    space = counted_space((1, 2))
    query = Query(default_configuration(space, ("a0", "a0")))
    costs = tuple(StepCost(step, 0, 2.0, 0.0, False, step) for step in ("step0", "step1"))
    history = History()
    outcome = Evaluation(20.0, (20.0,), 7.0, 7.0, costs)
    history.record(Trial(0, query).started().completed(outcome))
    cost = PathCost(space, list(space.paths()))
    assert cost.seconds(history, None) == pytest.approx([7.0, 7.0])
    assert cost.typical_seconds(history) == pytest.approx(7.0)
