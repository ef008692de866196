"""FLASH's scores of paths: improvement per cost, by linear models."""

from typing import Any

import numpy as np
import pytest
from flash_worlds import TOY, counted_space, one_hot_paths, steps_of
from worlds import evaluation

from prefect_tune.optimizers import Failure, History, Objective, Query, Trial
from prefect_tune.optimizers.acquisitions.expected_improvement import log_expected_improvement
from prefect_tune.optimizers.methods.flash.declaration import FlashOptions
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, PathModels, PathScores, ranked
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.surrogates.path_linear import PathLinear
from prefect_tune.optimizers.trials.outcome import FailureKind

SEEN = [5, 0, 1, 2]
LOSSES = [30.0, 22.0, 18.0, 26.0]
SECONDS = [20.0, 5.0, 60.0, 8.0]


def toy_history(seconds: list[float] = SECONDS, pending: tuple[int, ...] = ()) -> History:
    """The worked example of two steps of two and three algorithms."""
    space = counted_space(TOY)
    paths, history = list(space.paths()), History()
    for number, (i, loss, cost) in enumerate(zip(SEEN, LOSSES, seconds, strict=True)):
        query = Query(default_configuration(space, paths[i]))
        history.record(Trial(number, query).started().completed(evaluation(loss, cost)))
    for number, i in enumerate(pending, len(SEEN)):
        history.record(Trial(number, Query(default_configuration(space, paths[i]))))
    return history


def scores_of(**options: Any) -> PathScores:
    given = FlashOptions(**options).resolved()
    return PathModels(counted_space(TOY), 0, Objective(), given, {}).scores


def test_the_papers_models_are_those_of_equation_one_without_an_intercept() -> None:
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
    space = counted_space((2, 2))
    history, seen = History(), set[str]()
    for number, path in enumerate(space.paths()):
        query = Query(default_configuration(space, path))
        outcome = steps_of(query, seen, {"step1.a1": seconds})
        history.record(Trial(number, query).started().completed(outcome))
    return history


def equal_scores(cost: str, **options: Any) -> PathScores:
    given = FlashOptions(cost=cost, **options).resolved()  # type: ignore[arg-type]
    return PathModels(counted_space((2, 2)), 0, Objective(), given, {}).scores


@pytest.mark.parametrize("cost", ["steps", "total"])
def test_of_equal_improvement_the_cheap_path_is_before_the_dear_one(cost: str) -> None:
    for seconds, order in ((9.0, [0, 2, 1, 3]), (0.01, [1, 3, 0, 2])):
        scores = equal_scores(cost)
        # A path's logarithm is never below a floor, so that nothing below a second is told apart.
        if cost == "steps" or seconds > 1:
            found = ranked(scores.log_eips(equal_history(seconds)), None)
            assert {*found[:2]} == {*order[:2]}
    many = equal_scores(cost).log_eips_of_many_runs(equal_history(30.0))
    assert min(many[[0, 2]]) > max(many[[1, 3]])


def test_what_is_expected_is_divided_by_the_seconds_of_the_next_run() -> None:
    log_eips = equal_scores("steps").log_eips(equal_history(9.0))
    # Both paths have run with their defaults, so nothing is held: 0.1 s and 9 s after 0.1 s.
    assert log_eips[0] - log_eips[1] == pytest.approx(np.log(9.1 / 0.2))


def test_costs_that_do_not_count_change_nothing() -> None:
    one, other = (equal_scores("none").log_eips(equal_history(s)) for s in (0.01, 90.0))
    assert one == pytest.approx(other)
    assert np.ptp(one) < 1e-9


def test_a_path_is_not_cheaper_than_a_hundredth_of_the_mean() -> None:
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
        scores = PathModels(counted_space(TOY), 0, Objective(chance=45.0), options, {}).scores
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


def test_the_ridge_is_that_of_the_option() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES), 4.0)
    assert scores_of(ridge=4.0, cost="none", xi=0.0).log_eips(toy_history()) == pytest.approx(
        log_expected_improvement(model.mean(paths), model.deviation(paths), 18.0)
    )
