"""What FLASH scores, prunes and tunes: each phase by itself."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flash_worlds import TOY, counted_space, defaults_of, one_hot_paths, run_steps, steps_of
from shared_worlds import events_space
from worlds import evaluation, told_history

from prefect_tune.optimizers import Configuration, Failure, History, Objective, Query, Space, Trial
from prefect_tune.optimizers.acquisitions.expected_improvement import log_expected_improvement
from prefect_tune.optimizers.methods.declarations import SmacOptions
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.methods.flash.phases import Tuning, rest_of_design, subspace_of
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, PathModels, PathScores, ranked
from prefect_tune.optimizers.methods.smac import ForestSearch
from prefect_tune.optimizers.paths.cost import PathCost
from prefect_tune.optimizers.space.candidate_space import CandidateSpace
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.surrogates.linear import PathLinear
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


def scores_of(**options: Any) -> PathScores:
    given = FlashOptions(**options).resolved()
    return PathModels(counted_space(TOY, 0), 0, Objective(), given).scores


def test_the_papers_models_follow_equation_one_without_an_intercept() -> None:
    paths, losses = one_hot_paths(TOY), np.array(LOSSES)
    seen, inverse = paths[SEEN], np.linalg.inv(paths[SEEN].T @ paths[SEEN] + np.eye(5))
    beta = inverse @ seen.T @ losses
    deviation = np.sqrt(
        np.var(seen @ beta - losses) * (1 + np.einsum("ij,jk,ik->i", paths, inverse, paths))
    )
    log_seconds = paths @ (inverse @ seen.T @ np.log(SECONDS))
    expected = log_expected_improvement(paths @ beta, deviation, 18.0) - np.log(log_seconds)
    scores = scores_of(variant="paper").log_eips_of_many_runs(toy_history())
    assert scores == pytest.approx(expected)
    assert ranked(scores, None) == [3, 4, 0, 1, 5, 2]
    phase_two = scores_of(variant="paper").log_eips(toy_history())
    assert phase_two == pytest.approx(
        log_expected_improvement(paths @ beta, deviation, 18.0, 100.0) - np.log(log_seconds)
    )


def test_a_path_under_way_is_imagined_to_return_its_mean() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES))
    imagined = model.imagining(paths[4])
    scores = scores_of(xi=0.0, cost="none")
    alone, busy = scores.log_eips(toy_history()), scores.log_eips(toy_history(pending=(4,)))
    assert busy == pytest.approx(
        log_expected_improvement(imagined.mean(paths), imagined.deviation(paths), 18.0)
    )
    assert alone[4] - busy[4] > 0.2


def equal_history(seconds: float) -> History:
    """Four paths of equal loss, one algorithm of the last step taking some seconds."""
    return run_steps(defaults_of(counted_space((2, 2))), {"step1.a1": seconds})


def equal_scores(cost: str, **options: Any) -> PathScores:
    given = FlashOptions(cost=cost, **options).resolved()  # type: ignore[arg-type]
    return PathModels(counted_space((2, 2)), 0, Objective(), given).scores


def test_what_is_expected_is_divided_by_seconds_of_a_hundredth_of_the_mean_at_least() -> None:
    log_eips = equal_scores("steps").log_eips(equal_history(9.0))
    # Both paths have run with their defaults, so nothing is held: 0.1 s and 9 s after 0.1 s.
    assert log_eips[0] - log_eips[1] == pytest.approx(np.log(9.1 / 0.2))
    log_eips = equal_scores("steps").log_eips(equal_history(1e6))
    assert log_eips[0] - log_eips[1] == pytest.approx(np.log(2 / LEAST_SHARE), abs=1e-3)


def test_in_phase_two_the_mean_deviation_or_xi_does_not_count() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES))
    mean, deviation = model.mean(paths), model.deviation(paths)

    def expected(xi: float) -> np.ndarray:
        return log_expected_improvement(mean, deviation, 18.0, xi)

    history = toy_history()
    default = scores_of(cost="none")
    assert default.log_eips(history) == pytest.approx(expected(deviation.mean()))
    assert scores_of(xi=3.0, cost="none").log_eips(history) == pytest.approx(expected(3.0))
    assert default.log_eips_of_many_runs(history) == pytest.approx(expected(0.0))


def test_failures_count_as_the_bound_or_the_worst() -> None:
    history = toy_history()
    failed = Trial(9, history[0].query).started()
    history.record(failed.failed(Failure(FailureKind.ERROR, "it failed", cost_seconds=1.0)))
    given = {"cost": "none", "xi": 0.0}
    paths = one_hot_paths(TOY)
    for failure_cost, loss in (("bound", 100.0), ("worst", 30.0), ("chance", 45.0)):
        model = PathLinear.fit(paths[[*SEEN, 5]], np.array([*LOSSES, loss]))
        options = FlashOptions(failure_cost=failure_cost, **given).resolved()  # type: ignore[arg-type]
        scores = PathModels(counted_space(TOY, 0), 0, Objective(chance=45.0), options).scores
        assert scores.log_eips(history) == pytest.approx(
            log_expected_improvement(model.mean(paths), model.deviation(paths), 18.0)
        )


def test_equal_scores_are_ranked_at_random_given_a_generator() -> None:
    scores = np.array([1.0, 2.0, 1.0 + 1e-13, 0.5])
    assert ranked(scores, None) == [1, 0, 2, 3]
    orders = {tuple(ranked(scores, np.random.default_rng(seed))) for seed in range(20)}
    assert orders == {(1, 0, 2, 3), (1, 2, 0, 3)}


def test_many_runs_are_divided_by_the_logarithm_of_their_seconds_with_nothing_cached() -> None:
    many = equal_scores("steps").log_eips_of_many_runs(equal_history(9.0))
    expected = np.log(np.log(np.e + 9.1) / np.log(np.e + 0.2))
    assert many[0] - many[1] == pytest.approx(expected)


def test_the_ridge_comes_from_the_option() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES), 4.0)
    assert scores_of(ridge=4.0, cost="none", xi=0.0).log_eips(toy_history()) == pytest.approx(
        log_expected_improvement(model.mean(paths), model.deviation(paths), 18.0)
    )


SPACE = counted_space((3, 3))
DESIGN = [0, 4, 8, 1, 2, 3, 5, 6, 7]


def models(options: FlashOptions, space: Space = SPACE) -> PathModels:
    return PathModels(space, 0, Objective(), options)


def after_three(dear: float) -> History:
    """The first three of the design have run; the second model takes some seconds."""
    return run_steps(defaults_of(SPACE, *DESIGN[:3]), {"step1.a1": dear})


def left(dear: float, **options: object) -> list[int]:
    given = FlashOptions(**options).resolved()  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    return rest_of_design(DESIGN, given, models(given), after_three(dear), rng)


def test_dear_paths_wait_until_the_others_have_run_the_cheaper_ones_first() -> None:
    assert left(0.1) == [1, 2, 3, 5, 6, 7]
    assert left(500.0) == [2, 3, 5, 6, 1, 7]
    given = FlashOptions().resolved()
    seconds = {"step1.a1": 500.0, "step1.a2": 90.0}
    history = run_steps(defaults_of(SPACE, 0, 3, 4, 6, 8), seconds)
    design = [0, 3, 4, 6, 8, 1, 7, 2, 5]
    rest = rest_of_design(design, given, models(given), history, np.random.default_rng(0))
    assert rest == [2, 5, 1, 7]


def test_after_the_design_paths_asked_for_least_come_first() -> None:
    given = FlashOptions().resolved()
    rng = np.random.default_rng(0)
    rest = rest_of_design(DESIGN[:3], given, models(given), after_three(1.0), rng)
    assert set(rest[:6]) == {1, 2, 3, 5, 6, 7}
    assert set(rest[6:]) == {0, 4, 8}


def test_a_path_that_stands_twice_in_the_design_runs_twice() -> None:
    given = FlashOptions(cost="none").resolved()
    rng = np.random.default_rng(0)
    assert rest_of_design([0, 0, 4, 8], given, models(given), after_three(1.0), rng) == [0]


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


def tuning(part: Space = TWO_BY_TWO, **options: Any) -> Tuning:
    given = FlashOptions(**options).resolved()
    cost = PathCost(TWO_BY_TWO, list(TWO_BY_TWO.paths()))
    return Tuning(TWO_BY_TWO, part, Objective(), given, cost)


def history_of(n: int) -> History:
    rng = np.random.default_rng(0)
    drawn = (Query(sample_configuration(TWO_BY_TWO, rng)) for _ in range(n))
    return run_steps(drawn, STEP_SECONDS)


def test_no_candidate_is_cheaper_than_a_share_of_a_run() -> None:
    candidates, history = CandidateSpace(TWO_BY_TWO), history_of(8)
    typical = PathCost(TWO_BY_TWO, list(TWO_BY_TWO.paths())).typical_seconds(history)
    cheap = candidates.encode(
        [sample_configuration(TWO_BY_TWO, np.random.default_rng(2), ("a1", "a0"))]
    )
    log_cost = tuning()._log_cost(history, candidates, 1.0)
    assert log_cost is not None
    cost = log_cost(cheap, candidates.features(cheap))
    assert cost == pytest.approx([np.log(LEAST_SHARE * typical)])


def asked_for(n: int, **options: Any) -> list[tuple[str, ...]]:
    """Proposals where the losses of all are equal and what the first step does takes seconds."""
    search, history = tuning(**options), History()
    rng = np.random.default_rng(3)
    seen: set[str] = set()
    for number in range(n):
        query = (
            Query(sample_configuration(TWO_BY_TWO, rng))
            if number < 12
            else search.propose(history, np.random.default_rng([3, number]))[0]
        )
        outcome = steps_of(query, seen, {"step0.a0": 60.0, "step0.a1": 0.5})
        history.record(Trial(number, query).started().completed(outcome))
    return [t.query.configuration.path for t in history][12:]


@pytest.mark.slow
def test_of_equal_improvement_the_cheap_one_is_asked_for_first() -> None:
    cheap = [path[0] == "a1" for path in asked_for(42, cost_power=1.0)]
    whatever = [path[0] == "a1" for path in asked_for(42, cost_power=0.0)]
    assert sum(cheap) >= 20
    assert sum(whatever) < sum(cheap) - 4


def test_the_papers_forest_has_the_settings_of_its_time() -> None:
    search = tuning(variant="paper")._inside
    assert isinstance(search, ForestSearch)
    assert search.options == SmacOptions(
        n_startup=1,
        min_samples_split=10,
        max_features=5 / 6,
        random_share=0.5,
        failure_cost="bound",
        is_log=False,
    )
    default = tuning()._inside
    assert isinstance(default, ForestSearch)
    assert default.options == SmacOptions(n_startup=1, failure_cost="worst")


def test_inside_only_the_subspace_is_proposed_though_all_trials_teach() -> None:
    search = tuning(PART)
    history = history_of(12)
    paths = {
        search.propose(history, np.random.default_rng(s))[0].configuration.path for s in range(12)
    }
    assert {path[0] for path in paths} == {"a1"}


@pytest.mark.slow
@pytest.mark.parametrize(("outside", "least", "most"), [(0.0, 0, 0), (0.5, 3, 17)])
def test_a_share_of_proposals_may_lie_outside(outside: float, least: int, most: int) -> None:
    search = tuning(PART, outside=outside, cost_power=0.0)
    history = history_of(12)
    paths = [
        search.propose(history, np.random.default_rng(s))[0].configuration.path for s in range(20)
    ]
    assert least <= sum(path[0] == "a0" for path in paths) <= most


def test_first_runs_cost_what_the_values_that_look_best_cost() -> None:
    """Averages are best and were made before, so another run of trees with them is cheap."""
    space = events_space()
    found = PathModels(space, 0, Objective(), FlashOptions().resolved())
    history, seen = History(), set[str]()
    for number, (value, loss) in enumerate((("sum", 30.0), ("average", 10.0))):
        path = ("aggregate", "none", "none", "boosting")
        document = default_configuration(space, path).to_json()
        document["construct"]["hyperparameters"]["aggregation"] = value
        query = Query(Configuration.from_json(document, space))
        outcome = replace(steps_of(query, seen, {"construct.aggregate": 9.0}), loss=loss)
        history.record(Trial(number, query).started().completed(outcome))
    forest = found.table.paths.index(("aggregate", "unit", "none", "forest"))
    found.learn(history)
    assert found.scores.seconds(history)[forest] < 1
    values = dict(found.table.first_run(forest)["construct"].values)
    assert values["aggregation"] == "average"
    history.record(replace(history[1], evaluation=replace(history[1].evaluation, loss=50.0)))
    found.learn(history)
    assert dict(found.table.first_run(forest)["construct"].values)["aggregation"] != "average"


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
