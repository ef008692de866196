"""Initial designs, linear models and costs of paths, with shared first steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from worlds import (
    BENCHMARK,
    FIRST_THIRTY,
    TOY,
    counted_space,
    defaults_of,
    mixed_space,
    one_hot_paths,
    ordered_space,
    run_steps,
)

from prefect_tune.optimizers import Evaluation, History, Objective, Query, Space, StepCost, Trial
from prefect_tune.optimizers.methods.flash.cost import PathCost
from prefect_tune.optimizers.methods.flash.design import design_order
from prefect_tune.optimizers.models.path_linear import PathLinear
from prefect_tune.optimizers.models.seconds import Costs
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import CandidateSpace

PATHS = one_hot_paths(TOY)
SEEN = [5, 0, 1, 2]
LOSSES = np.array([30.0, 22.0, 18.0, 26.0])


def test_ridge_with_intercept_matches_the_worked_example() -> None:
    model = PathLinear.fit(PATHS[SEEN], LOSSES)
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
    weighted = PathLinear.fit(PATHS[SEEN], LOSSES, weights=np.array([2.0, 1.0, 1.0, 1.0]))
    twice = PathLinear.fit(PATHS[[5, *SEEN]], np.append(LOSSES[0], LOSSES))
    assert weighted.mean(PATHS) == pytest.approx(twice.mean(PATHS))
    assert weighted.deviation(PATHS) == pytest.approx(twice.deviation(PATHS))


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 1455), st.floats(0, 100)), min_size=2, max_size=60),
    st.floats(0.01, 10),
    st.integers(0, 1455),
)
def test_ridge_agrees_with_scikit_learn_a_direct_inverse_and_a_refit(runs, ridge, new) -> None:
    table = one_hot_paths(BENCHMARK)
    paths, targets = table[[i for i, _ in runs]], np.array([m for _, m in runs])
    model = PathLinear.fit(paths, targets, ridge)
    oracle = Ridge(alpha=ridge, solver="svd").fit(paths, targets)
    assert model.mean(table) == pytest.approx(oracle.predict(table), abs=1e-8)
    inverse = np.linalg.inv(paths.T @ paths + ridge * np.eye(33))
    direct = [p @ inverse @ p for p in table[:50]]
    assert model.leverage(table[:50]) == pytest.approx(direct, abs=1e-9)
    # Imagining a path equals a refit with its mean as outcome.
    imagined, mean = model.imagining(table[new]), model.mean(table[[new]])
    refit = PathLinear.fit(np.vstack([paths, table[new]]), np.append(targets, mean), ridge)
    assert imagined.inverse == pytest.approx(refit.inverse, abs=1e-10)
    assert imagined.mean(table) == pytest.approx(refit.mean(table), abs=1e-9)


def test_equal_losses_leave_a_positive_deviation() -> None:
    """Rounding errors of equal losses are no spread."""
    for rounding in (0.0, 4e-15):
        model = PathLinear.fit(PATHS[SEEN], 7.0 + rounding * np.arange(4))
        assert (model.deviation(PATHS) > 1e-5).all()


def test_design_order_matches_the_worked_examples() -> None:
    order = design_order(one_hot_paths(TOY), 8, start=5)
    assert order == [5, 0, 1, 2, 3, 4, 0, 1]
    order = design_order(one_hot_paths(BENCHMARK), 36, start=0)
    assert order == [*FIRST_THIRTY, 329, 55, 1420, 660, 261, 346]


def test_greedy_design_reaches_full_rank_with_the_known_determinant() -> None:
    paths = one_hot_paths(BENCHMARK)
    order = design_order(paths, 30, np.random.default_rng(0))
    assert np.linalg.matrix_rank(paths[order]) == 30
    values = np.linalg.eigvalsh(paths[order].T @ paths[order])
    assert np.log(values[values > 1e-8]).sum() == pytest.approx(18.069729, abs=5e-7)


LOAD = 0.01


def predicted(space: Space, history: History, paths, *, is_cached: bool = True) -> np.ndarray:
    """Return predicted seconds of paths with default values, given a history."""
    costs, candidates = Costs(space, Objective(n_folds=1)), CandidateSpace(space)
    for trial in history:
        costs.tell(trial)
    encoded = candidates.encode(default_configuration(space, path) for path in paths)
    seconds = PathCost(candidates, costs).after(history if is_cached else None)
    return seconds(encoded, candidates.features(encoded))


SECONDS = {"step0.a0": 10.0, "step0.a1": 8.0, "step1.a0": 1.0, "step1.a1": 2.0}


def test_cached_steps_cost_only_loading_and_models_are_always_fitted() -> None:
    space = counted_space((2, 2))
    paths = list(space.paths())
    history = run_steps(defaults_of(space, 0, 1, 3), SECONDS)
    whole = [11, 12, 9, 10]
    assert predicted(space, history, paths) == pytest.approx([1, 2, 1, 2], rel=0.15)
    assert predicted(space, history, paths, is_cached=False) == pytest.approx(whole, rel=0.15)
    uncached = run_steps(defaults_of(space, 0, 1, 3), SECONDS, is_cached=False)
    assert predicted(space, uncached, paths) == pytest.approx(whole, rel=0.15)
    history.estimated.update(t.number for t in history)  # stopped after their first folds
    assert predicted(space, history, paths) == pytest.approx(whole, rel=0.15)


def test_cached_steps_depend_on_the_chosen_order() -> None:
    space, seconds = ordered_space(2), {"a": 8.0, "b": 6.0, "model": 1.0}
    ran = ("b_before_a", "scale", "power", "tree")
    query = Query(default_configuration(space, ran))
    made = tuple(
        StepCost(step.name, 0, seconds[step.name], 0.0, False, step.name)
        for step, _ in space.pipeline(ran)
    )
    hits = tuple(StepCost(step, 0, 1.0, LOAD, True, step) for step in ("a", "b"))
    history = History()
    for number, costs in enumerate((made, hits)):
        spent = sum(c.load_seconds if c.hit else c.seconds for c in costs)
        outcome = Evaluation(20.0, (20.0,), spent, spent, costs)
        history.record(Trial(number, query).started().completed(outcome))
    expected = {
        ("b_before_a", "scale", "power", "bayes"): 1.0,  # all but the model is there
        ("b_before_a", "power", "power", "tree"): 8.0 + 1.0,  # b ran first: it is there
        ("b_before_a", "scale", "scale", "tree"): 15.0,  # another b: nothing of a is there
        ("a_before_b", "scale", "power", "tree"): 15.0,  # a on other data, and b on it
        # Without a, b is the first again; an algorithm never seen takes what others do.
        ("a_before_b", "none", "power", "tree"): 1.0,
    }
    found = predicted(space, history, expected)
    assert found == pytest.approx([*expected.values()], rel=0.15)


def test_path_costs_equal_predictions_of_the_cost_model() -> None:
    """`Costs` predicts the seconds of the whole evaluation with an empty cache."""
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
    candidates = CandidateSpace(space)
    drawn = [sample_configuration(space, rng) for _ in range(10)]
    encoded = candidates.encode(drawn)
    seconds = PathCost(candidates, costs).after(None)(encoded, candidates.features(encoded))
    assert seconds == pytest.approx([costs.seconds(Query(c)) for c in drawn])
    assert max(seconds) > 2 * min(seconds)
