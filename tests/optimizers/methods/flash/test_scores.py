"""What FLASH scores, prunes and tunes: each phase by itself."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flash_worlds import TOY, counted_space, defaults_of, one_hot_paths, run_steps, steps_of
from shared_worlds import events_space
from worlds import evaluation, told_history

from prefect_tune.optimizers import (
    Configuration,
    Failure,
    Flash,
    History,
    Objective,
    Query,
    Space,
    Trial,
)
from prefect_tune.optimizers.methods.flash.flash import subspace_of
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, ranked
from prefect_tune.optimizers.methods.smac import ForestSettings
from prefect_tune.optimizers.models.path_linear import PathLinear
from prefect_tune.optimizers.search.improvement import log_expected_improvement
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import CandidateSpace
from prefect_tune.optimizers.trials.outcome import FailureKind

SEEN = [5, 0, 1, 2]
LOSSES = [30.0, 22.0, 18.0, 26.0]
SECONDS = [20.0, 5.0, 60.0, 8.0]


def toy_history(seconds: list[float] = SECONDS, pending: tuple[int, ...] = ()) -> History:
    """The worked example of two steps of two and three algorithms."""
    space = counted_space(TOY, 0)
    paths, history = list(space.paths()), History()
    for number, (i, loss, cost) in enumerate(zip(SEEN, LOSSES, seconds, strict=True)):
        query = Query(default_configuration(space, paths[i]))
        history.record(Trial(number, query).started().completed(evaluation(loss, cost)))
    for number, i in enumerate(pending, len(SEEN)):
        history.record(Trial(number, Query(default_configuration(space, paths[i]))))
    return history


def flash(space: Space, history: History, **options: Any) -> Flash:
    """A search with this history."""
    optimizer = Flash(space, 0, Objective(), **options)
    optimizer.history = history
    for trial in history:
        if trial.is_told:
            optimizer.costs.tell(trial)
    return optimizer


def log_eips(history: History, space: Space | None = None, **options: Any) -> np.ndarray:
    """Improvement per cost of the next run."""
    log_ei, log_cost = flash(space or counted_space(TOY, 0), history, **options)._scores.terms(
        history
    )
    return log_ei - log_cost


def log_eips_of_many_runs(history: History, space: Space, **options: Any) -> np.ndarray:
    log_ei, log_cost = flash(space, history, **options)._scores.terms(history, is_next_run=False)
    return log_ei - log_cost


def test_the_papers_models_follow_equation_one_without_an_intercept() -> None:
    paths, losses = one_hot_paths(TOY), np.array(LOSSES)
    seen, inverse = paths[SEEN], np.linalg.inv(paths[SEEN].T @ paths[SEEN] + np.eye(5))
    beta = inverse @ seen.T @ losses
    deviation = np.sqrt(
        np.var(seen @ beta - losses) * (1 + np.einsum("ij,jk,ik->i", paths, inverse, paths))
    )
    log_seconds = paths @ (inverse @ seen.T @ np.log(SECONDS))
    expected = log_expected_improvement(paths @ beta, deviation, 18.0) - np.log(log_seconds)
    scores = log_eips_of_many_runs(toy_history(), counted_space(TOY, 0), variant="paper")
    assert scores == pytest.approx(expected)
    assert ranked(scores, None) == [3, 4, 0, 1, 5, 2]
    phase_two = log_eips(toy_history(), variant="paper")
    assert phase_two == pytest.approx(
        log_expected_improvement(paths @ beta, deviation, 18.0, 100.0) - np.log(log_seconds)
    )


def test_a_path_under_way_is_imagined_to_return_its_mean() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES))
    imagined = model.imagining(paths[4])
    alone, busy = (
        flash(counted_space(TOY, 0), history)._scores.terms(history)[0]
        for history in (toy_history(), toy_history(pending=(4,)))
    )
    deviation = imagined.deviation(paths)
    assert busy == pytest.approx(
        log_expected_improvement(imagined.mean(paths), deviation, 18.0, float(deviation.mean()))
    )
    assert alone[4] - busy[4] > 0.2


def equal_history(seconds: float) -> History:
    """Four paths of equal loss, one algorithm of the last step taking some seconds."""
    return run_steps(defaults_of(counted_space((2, 2))), {"step1.a1": seconds})


def test_what_is_expected_is_divided_by_seconds_of_a_hundredth_of_the_mean_at_least() -> None:
    found = log_eips(equal_history(9.0), counted_space((2, 2)))
    # The first step was cached by both paths: 0.1 s and 9 s after loading it in 0.01 s.
    assert found[0] - found[1] == pytest.approx(np.log(9.01 / 0.11), rel=0.1)
    found = log_eips(equal_history(1e6), counted_space((2, 2)))
    assert found[0] - found[1] == pytest.approx(np.log(2 / LEAST_SHARE), abs=1e-3)


def test_in_phase_two_the_mean_deviation_does_not_count() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES))
    mean, deviation = model.mean(paths), model.deviation(paths)

    def expected(xi: float) -> np.ndarray:
        return log_expected_improvement(mean, deviation, 18.0, xi)

    history = toy_history()
    scores = flash(counted_space(TOY, 0), history)._scores
    assert scores.terms(history)[0] == pytest.approx(expected(deviation.mean()))
    assert scores.terms(history, is_next_run=False)[0] == pytest.approx(expected(0.0))


def test_failures_count_as_the_bound_or_the_worst() -> None:
    history = toy_history()
    failed = Trial(9, history[0].query).started()
    history.record(failed.failed(Failure(FailureKind.ERROR, "it failed", cost_seconds=1.0)))
    paths = one_hot_paths(TOY)
    for variant, loss in (("paper", 100.0), ("default", 30.0)):
        has_intercept = variant == "default"
        targets = np.array([*LOSSES, loss])
        model = PathLinear.fit(paths[[*SEEN, 5]], targets, has_intercept=has_intercept)
        scores = flash(counted_space(TOY, 0), history, variant=variant)._scores
        assert scores.terms(history, is_next_run=False)[0] == pytest.approx(
            log_expected_improvement(model.mean(paths), model.deviation(paths), 18.0)
        )


def test_equal_scores_are_ranked_at_random_given_a_generator() -> None:
    scores = np.array([1.0, 2.0, 1.0 + 1e-13, 0.5])
    assert ranked(scores, None) == [1, 0, 2, 3]
    orders = {tuple(ranked(scores, np.random.default_rng(seed))) for seed in range(20)}
    assert orders == {(1, 0, 2, 3), (1, 2, 0, 3)}


def test_many_runs_are_divided_by_the_logarithm_of_their_seconds_with_nothing_cached() -> None:
    many = log_eips_of_many_runs(equal_history(9.0), counted_space((2, 2)))
    expected = np.log(np.log(np.e + 9.1) / np.log(np.e + 0.2))
    assert many[0] - many[1] == pytest.approx(expected, rel=0.1)


SPACE = counted_space((3, 3))
DESIGN = [0, 4, 8, 1, 2, 3, 5, 6, 7]


def after_three(dear: float) -> History:
    """The first three of the design have run; the second model takes some seconds."""
    return run_steps(defaults_of(SPACE, *DESIGN[:3]), {"step1.a1": dear})


def rest(design: list[int], history: History, **options: Any) -> list[int]:
    optimizer = flash(SPACE, history, **options)
    optimizer._decided.design = design
    return optimizer._rest_of_design(np.random.default_rng(0))


def test_dear_paths_wait_until_the_others_have_run_the_cheaper_ones_first() -> None:
    assert rest(DESIGN, after_three(0.1)) == [1, 2, 3, 5, 6, 7]
    assert rest(DESIGN, after_three(500.0)) == [2, 3, 5, 6, 1, 7]
    seconds = {"step1.a1": 500.0, "step1.a2": 90.0}
    history = run_steps(defaults_of(SPACE, 0, 3, 4, 6, 8), seconds)
    assert rest([0, 3, 4, 6, 8, 1, 7, 2, 5], history) == [2, 5, 1, 7]


def test_after_the_design_paths_asked_for_least_come_first() -> None:
    found = rest(DESIGN[:3], after_three(1.0))
    assert set(found[:6]) == {1, 2, 3, 5, 6, 7}
    assert set(found[6:]) == {0, 4, 8}


def test_a_path_that_stands_twice_in_the_design_runs_twice() -> None:
    assert rest([0, 0, 4, 8], after_three(1.0), variant="paper") == [0]


FOUR_BY_FOUR = counted_space((4, 4))


def history_of_losses(losses: dict[tuple[str, str], float | None]) -> History:
    return told_history(
        (Query(default_configuration(FOUR_BY_FOUR, path)), loss) for path, loss in losses.items()
    )


def test_the_algorithms_of_the_paths_are_kept_in_the_order_of_the_space() -> None:
    kept = subspace_of(FOUR_BY_FOUR, [("a3", "a1"), ("a0", "a1")], History())
    assert kept == {"step0": ["a0", "a3"], "step1": ["a1"]}


def test_a_share_is_also_kept_by_the_least_loss_seen_with_each_algorithm() -> None:
    history = history_of_losses({
        ("a3", "a3"): 30.0, ("a2", "a0"): 20.0, ("a1", "a2"): 10.0, ("a0", "a2"): None,
    })  # fmt: skip
    kept = subspace_of(FOUR_BY_FOUR, [("a0", "a1")], history, 0.5)
    assert kept == {"step0": ["a0", "a1", "a2"], "step1": ["a0", "a1", "a2"]}
    assert subspace_of(FOUR_BY_FOUR, [("a0", "a1")], history, 0.75)["step0"] == [
        "a0",
        "a1",
        "a2",
        "a3",
    ]


def test_of_a_small_share_two_are_kept_all_the_same() -> None:
    history = history_of_losses({("a1", "a1"): 10.0, ("a2", "a2"): 20.0, ("a3", "a3"): 30.0})
    assert subspace_of(FOUR_BY_FOUR, [("a0", "a0")], history, 0.01)["step0"] == ["a0", "a1", "a2"]


TWO_BY_TWO = counted_space((2, 2))
PART = TWO_BY_TWO.restricted_to({"step0": ["a1"], "step1": ["a0", "a1"]})
STEP_SECONDS = {"step0.a0": 1e4, "step0.a1": 8.0, "step1.a0": 0.01, "step1.a1": 2.0}


def tuning(history: History, part: Space = TWO_BY_TWO, **options: Any) -> Flash:
    optimizer = flash(TWO_BY_TWO, history, **options)
    optimizer._decided.subspace = {s.name: [a.id for a in s.algorithms] for s in part.steps}
    return optimizer


def history_of(n: int) -> History:
    rng = np.random.default_rng(0)
    drawn = (Query(sample_configuration(TWO_BY_TWO, rng)) for _ in range(n))
    return run_steps(drawn, STEP_SECONDS)


def test_no_candidate_is_cheaper_than_a_share_of_a_run() -> None:
    candidates, history = CandidateSpace(TWO_BY_TWO), history_of(8)
    cheap = candidates.encode(
        [sample_configuration(TWO_BY_TWO, np.random.default_rng(2), ("a1", "a0"))]
    )
    search = tuning(history)
    log_cost, typical = search._log_cost(), search._scores.seconds(None).mean()
    assert log_cost is not None
    cost = log_cost(cheap, candidates.features(cheap))
    assert cost == pytest.approx([0.5 * np.log(LEAST_SHARE * typical)])


def test_the_papers_forest_has_the_settings_of_its_time() -> None:
    assert tuning(History(), variant="paper")._tuning.settings == ForestSettings(
        n_startup=1,
        forest={"min_samples_split": 10, "max_features": 5 / 6},
        random_share=0.5,
        failure_cost="bound",
        is_log=False,
    )
    assert tuning(History())._tuning.settings == ForestSettings(n_startup=1)


def test_only_the_subspace_is_proposed_though_all_trials_teach() -> None:
    search = tuning(history_of(12), PART)
    queries = [search._tuned(np.random.default_rng(s)) for s in range(12)]
    assert {query.configuration.path[0] for query in queries} == {"a1"}


def learn(optimizer: Flash) -> None:
    optimizer._table.best = optimizer._scores.best_values(optimizer.history)


def test_first_runs_cost_what_the_values_that_look_best_cost() -> None:
    """Averages are best and were made before, so another run of trees with them is cheap."""
    space = events_space()
    history, seen = History(), set[str]()
    found = flash(space, history)
    for number, (value, loss) in enumerate((("sum", 30.0), ("average", 10.0))):
        path = ("aggregate", "none", "none", "boosting")
        document = default_configuration(space, path).to_json()
        document["construct"]["hyperparameters"]["aggregation"] = value
        query = Query(Configuration.from_json(document, space))
        outcome = replace(steps_of(query, seen, {"construct.aggregate": 9.0}), loss=loss)
        history.record(Trial(number, query).started().completed(outcome))
    forest = found._table.paths.index(("aggregate", "unit", "none", "forest"))
    learn(found)
    assert found._scores.seconds(history)[forest] < 1
    values = dict(found._table.first_run(forest)["construct"].values)
    assert values["aggregation"] == "average"
    history.record(replace(history[1], evaluation=replace(history[1].evaluation, loss=50.0)))
    learn(found)
    assert dict(found._table.first_run(forest)["construct"].values)["aggregation"] != "average"


def test_a_row_of_a_whole_weight_counts_like_as_many_equal_rows() -> None:
    rng = np.random.default_rng(5)
    paths = one_hot_paths((2, 3, 2))
    targets, weights = rng.normal(20, 5, len(paths)), rng.integers(1, 4, len(paths))
    for has_intercept in (True, False):
        weighted = PathLinear.fit(
            paths, targets, has_intercept=has_intercept, weights=weights.astype(float)
        )
        repeated = PathLinear.fit(
            np.repeat(paths, weights, axis=0),
            np.repeat(targets, weights),
            has_intercept=has_intercept,
        )
        assert weighted.coefficients == pytest.approx(repeated.coefficients)
        assert weighted.intercept == pytest.approx(repeated.intercept)
        assert weighted.inverse == pytest.approx(repeated.inverse)
        assert weighted.residual_variance == pytest.approx(repeated.residual_variance)
