"""Designs of paths, linear models of them, their prefixes and what they cost."""

import numpy as np
import pytest
from flash_worlds import (
    BENCHMARK,
    FIRST_THIRTY,
    TOY,
    counted_space,
    defaults_of,
    one_hot_paths,
    run_steps,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from worlds import mixed_space, ordered_space, recorded

from prefect_tune.optimizers import (
    Configuration,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Objective,
    Query,
    Space,
    StepCost,
    Trial,
)
from prefect_tune.optimizers.paths.cost import (
    CandidatePrefixes,
    PathCost,
    PathPrefixes,
    RunningOrder,
    StepSeconds,
)
from prefect_tune.optimizers.paths.table import design_order
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import CandidateSpace
from prefect_tune.optimizers.surrogates.costs import Costs
from prefect_tune.optimizers.surrogates.path_linear import PathLinear

PATHS = one_hot_paths(TOY)
SEEN = [5, 0, 1, 2]
LOSSES = np.array([30.0, 22.0, 18.0, 26.0])


def toy_model() -> PathLinear:
    return PathLinear.fit(PATHS[SEEN], LOSSES)


def test_the_worked_example_of_the_ridge_with_intercept() -> None:
    model = toy_model()
    assert model.coefficients * 11 == pytest.approx([-18, 18, -3, -25, 28])
    assert model.intercept == pytest.approx(266 / 11)
    assert model.residual_variance == pytest.approx(2.185950, abs=5e-7)
    assert model.leverage(PATHS) == pytest.approx(
        [0.596154, 0.596154, 0.538462, 1.134615, 1.134615, 0.615385], abs=5e-7
    )
    assert model.mean(PATHS) == pytest.approx(
        [22.272727, 20.272727, 25.090909, 25.545455, 23.545455, 28.363636], abs=5e-7
    )
    assert model.deviation(PATHS) == pytest.approx(
        [1.867917, 1.867917, 1.833849, 2.160130, 2.160130, 1.879136], abs=5e-7
    )


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 1455), st.floats(0, 100)), min_size=2, max_size=60),
    st.floats(0.01, 10),
)
def test_it_agrees_with_scikit_learn_and_a_direct_inverse(runs, ridge) -> None:
    table = one_hot_paths(BENCHMARK)
    paths, targets = table[[i for i, _ in runs]], np.array([m for _, m in runs])
    model = PathLinear.fit(paths, targets, ridge)
    oracle = Ridge(alpha=ridge, solver="svd").fit(paths, targets)
    assert model.mean(table) == pytest.approx(oracle.predict(table), abs=1e-8)
    inverse = np.linalg.inv(paths.T @ paths + ridge * np.eye(33))
    direct = [p @ inverse @ p for p in table[:50]]
    assert model.leverage(table[:50]) == pytest.approx(direct, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(st.integers(0, 1455), min_size=1, max_size=30), st.integers(0, 1455))
def test_imagining_a_path_equals_a_refit_with_its_mean_as_outcome(seen, new) -> None:
    table = one_hot_paths(BENCHMARK)
    targets = np.random.default_rng(len(seen)).random(len(seen)) * 50
    model = PathLinear.fit(table[seen], targets)
    imagined = model.imagining(table[new])
    refit = PathLinear.fit(table[[*seen, new]], np.append(targets, model.mean(table[[new]])))
    assert imagined.inverse == pytest.approx(refit.inverse, abs=1e-10)
    assert imagined.mean(table) == pytest.approx(refit.mean(table), abs=1e-9)
    assert (imagined.leverage(table) <= model.leverage(table) + 1e-12).all()


def test_equal_losses_leave_a_positive_deviation() -> None:
    model = PathLinear.fit(PATHS[SEEN], np.full(4, 7.0))
    assert (model.deviation(PATHS) > 0).all()


def log_pseudo_determinant(paths: np.ndarray) -> float:
    eigenvalues = np.linalg.eigvalsh(paths.T @ paths)
    return float(np.log(eigenvalues[eigenvalues > 1e-8]).sum())


def eigenvalue_picks(paths: np.ndarray, n: int, first: int) -> list[int]:
    """The paper's rule as written: the product of the largest l eigenvalues, lowest index first."""
    chosen = [first]
    while len(chosen) < n:
        largest = min(len(chosen) + 1, paths.shape[1])
        information = paths[chosen].T @ paths[chosen]
        candidates = information + np.einsum("bi,bj->bij", paths, paths)
        values = np.linalg.eigvalsh(candidates)[:, -largest:]
        scores = np.log(np.maximum(values, 1e-300)).sum(axis=1)
        chosen.append(int(np.flatnonzero(scores >= scores.max() - 1e-8)[0]))
    return chosen


def test_the_worked_graphs_give_their_picks() -> None:
    order = design_order(one_hot_paths(TOY), 8, start=[5])
    assert order == [5, 0, 1, 2, 3, 4, 0, 1]
    order = design_order(one_hot_paths(BENCHMARK), 36, start=[0])
    assert order == [*FIRST_THIRTY, 329, 55, 1420, 660, 261, 346]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("counts", "n", "first"), [(TOY, 4, 5), (BENCHMARK, 12, 0), ((3, 3), 5, 2)]
)
def test_the_picks_equal_picks_by_eigenvalues(counts, n, first) -> None:
    paths = one_hot_paths(counts)
    assert design_order(paths, n, start=[first]) == eigenvalue_picks(paths, n, first)


@pytest.mark.parametrize("seed", range(4))
def test_any_start_and_any_ties_reach_the_full_rank_with_the_same_determinant(seed: int) -> None:
    paths = one_hot_paths(BENCHMARK)
    order = design_order(paths, 30, np.random.default_rng(seed))
    assert np.linalg.matrix_rank(paths[order]) == 30
    assert log_pseudo_determinant(paths[order]) == pytest.approx(18.069729, abs=5e-7)
    assert paths[order[:14]].any(axis=0).all()


@pytest.mark.parametrize("counts", [(1,), (3,), (1, 1), (2, 1, 2)])
def test_small_graphs_are_filled_without_a_warning(counts) -> None:
    paths = one_hot_paths(counts)
    order = design_order(paths, 7, np.random.default_rng(0))
    assert len(order) == 7
    assert set(order) == set(range(len(paths))) or len(paths) > 3


@pytest.mark.parametrize("is_cached", [True, False])
def test_what_is_held_is_counted_at_its_load_time(is_cached: bool) -> None:
    space = counted_space((2, 2))
    seconds = {"step0.a0": 10.0, "step0.a1": 8.0, "step1.a0": 1.0, "step1.a1": 2.0}
    history = run_steps(defaults_of(space, 0, 1, 3), seconds, is_cached=is_cached)
    paths = list(space.paths())
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
    rng = np.random.default_rng(0)
    seconds = {"step0.a0": 8.0, "step0.a1": 8.0, "step1.a0": 1.0, "step1.a1": 1.0}
    ran = [sample_configuration(space, rng, path) for path in space.paths()]
    history = run_steps(map(Query, [*ran, ran[0]]), seconds)
    other = sample_configuration(space, rng, ran[0].path)
    mixed = Configuration((ran[0].choices[0], other.choices[1]))
    candidates = CandidateSpace(space)
    predicted = PathCost(space, list(space.paths())).of_candidates(history, candidates)
    encoded = candidates.encode([mixed, other])
    assert predicted(encoded, candidates.features(encoded)) == pytest.approx([0.01 + 1, 8 + 1])


def test_a_failure_costs_the_step_that_failed_and_leaves_what_was_before_it() -> None:
    space = counted_space((2, 2))
    paths = list(space.paths())
    seconds = {"step0.a0": 8.0, "step0.a1": 4.0, "step1.a0": 1.0}
    history = run_steps(defaults_of(space, 0, 2), seconds)
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


def test_what_is_outside_of_the_steps_is_taken_by_each_run_and_the_typical_one() -> None:
    space = counted_space((2, 2))
    seconds = {"step0.a0": 10.0, "step0.a1": 8.0, "step1.a0": 1.0, "step1.a1": 2.0}
    history = run_steps(defaults_of(space), seconds, is_cached=False)
    assert PathCost(space, list(space.paths())).typical_seconds(history) == pytest.approx(10.5)
    space = counted_space((1, 2))
    query = Query(default_configuration(space, ("a0", "a0")))
    costs = tuple(StepCost(step, 0, 2.0, 0.0, False, step) for step in ("step0", "step1"))
    history = History()
    outcome = Evaluation(20.0, (20.0,), 7.0, 7.0, costs)
    history.record(Trial(0, query).started().completed(outcome))
    cost = PathCost(space, list(space.paths()))
    assert cost.seconds(history, None) == pytest.approx([7.0, 7.0])
    assert cost.typical_seconds(history) == pytest.approx(7.0)


def test_on_many_rows_seconds_are_predicted_with_the_values_of_candidates() -> None:
    """As `Costs` predicts the whole evaluation, of which nothing is cached."""
    space, rng = mixed_space(), np.random.default_rng(0)
    costs = Costs(space, Objective(n_rows=64_000, n_held_out=20_000, n_folds=3))
    for number in range(20):
        query = Query(sample_configuration(space, rng), subset=0.25, folds=1)
        depth = float(dict(query.configuration["model"].values).get("depth", 1))
        steps = tuple(
            StepCost(step, 0, seconds, 0.0, hit=False, key="", held_out_seconds=0.1)
            for step, seconds in (("scale", 0.2), ("model", 0.3 * depth))
        )
        outcome = Evaluation(20.0, (20.0,), 1.0 + depth, 1.0 + depth, steps)
        costs.tell(Trial(number, query).started().completed(outcome))
    paths = list(space.paths())
    cost, candidates = PathCost(space, paths, costs=costs), CandidateSpace(space)
    drawn = [sample_configuration(space, rng) for _ in range(10)]
    encoded = candidates.encode(drawn)
    predicted = cost.of_candidates(History(), candidates)(encoded, candidates.features(encoded))
    assert predicted == pytest.approx([costs.seconds(Query(c)) for c in drawn])
    defaults = [costs.seconds(Query(default_configuration(space, path))) for path in paths]
    assert cost.seconds(History(), None) == pytest.approx(defaults)
    assert max(predicted) > 2 * min(predicted)


SPACE = counted_space((2, 2))


def cost(step: str, seconds: float, *, fold: int = 0, load: float | None = None) -> StepCost:
    """A step of a fold; a hit if it was loaded."""
    return StepCost(step, fold, seconds, load or 0.0, load is not None, f"{step}-{fold}")


def complete(number, path, *costs, seconds, **query) -> Trial:
    folds = tuple(20.0 for _ in {c.fold for c in costs})
    outcome = Evaluation(20.0, folds, seconds, seconds, costs)
    asked = Query(default_configuration(SPACE, path), **query)  # type: ignore[arg-type]
    return Trial(number, asked).started().completed(outcome)


def failed(number: int, path: tuple[str, ...], failure: Failure, space: Space = SPACE) -> Trial:
    return Trial(number, Query(default_configuration(space, path))).started().failed(failure)


def tables(*trials: Trial, space: Space = SPACE) -> tuple[list[list[float]], float, float]:
    history = recorded(*trials)
    made, load, overhead = StepSeconds(space, RunningOrder(space)).tables(history)
    return [table.tolist() for table in made], load, overhead


def test_what_was_served_counts_as_what_it_once_took_and_what_never_ran_as_others() -> None:
    made, load, overhead = tables(
        complete(0, ("a0", "a0"), cost("step0", 8.0), cost("step1", 1.0), seconds=9.5),
        complete(1, ("a0", "a1"), cost("step0", 8.0, load=0.2), cost("step1", 3.0), seconds=3.7),
    )
    assert made == [[8.0, 8.0], [1.0, 3.0]]
    assert (load, overhead) == pytest.approx((0.2, 0.5))
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


SPACES = [mixed_space(), ordered_space(2), ordered_space(3)]


def by_hand(space: Space, configuration: Configuration) -> dict[str, tuple[object, ...]]:
    """By step, all that ran up to it and did something, in order, with its values."""
    ran: tuple[object, ...] = ()
    prefixes = {}
    for step, algorithm in space.pipeline(configuration.path):
        if not algorithm.is_idle:
            ran = (*ran, (step.name, configuration[step.name]))
        prefixes[step.name] = ran
    return prefixes


@pytest.mark.parametrize("space", SPACES, ids=lambda s: f"{s.name}-{len(s.steps)}")
def test_prefixes_of_paths_are_equal_where_the_same_steps_ran_in_the_same_order(space) -> None:
    prefixes, names = PathPrefixes(space, RunningOrder(space)), [s.name for s in space.searched]
    seen: dict[int, tuple[object, ...]] = {}
    codes: dict[tuple[object, ...], int] = {}
    for path in space.paths():
        expected = by_hand(space, default_configuration(space, path))
        for k, code in prefixes.codes(path).items():
            assert seen.setdefault(code, expected[names[k]]) == expected[names[k]]
            assert codes.setdefault(expected[names[k]], code) == code


@pytest.mark.parametrize("space", SPACES, ids=lambda s: f"{s.name}-{len(s.steps)}")
def test_prefixes_of_candidates_are_equal_where_steps_and_values_are(space: Space) -> None:
    rng = np.random.default_rng(0)
    table, order = CandidateSpace(space), RunningOrder(space)
    some = [sample_configuration(space, rng) for _ in range(40)]
    some += [default_configuration(space, c.path) for c in some]
    encoded = table.encode(some)
    prefixes = CandidatePrefixes(table, order).of(encoded, table.features(encoded))
    expected = [by_hand(space, c) for c in some]
    for k, step in enumerate(space.searched):
        if step.orders:
            continue
        for i in range(len(some)):
            equal = [prefixes[k][i] == prefixes[k][j] for j in range(len(some))]
            # A step that does nothing may be told apart from none where no order is chosen.
            wanted = [expected[i][step.name] == expected[j][step.name] for j in range(len(some))]
            assert equal == wanted
