"""What FLASH scores, prunes and tunes: each phase by itself."""

from typing import Any

import numpy as np
import pytest
from worlds import TOY, counted_space, defaults_of, one_hot_paths, run_steps, told

from prefect_tune.optimizers import (
    Flash,
    History,
    Objective,
    Query,
    Space,
    Trial,
)
from prefect_tune.optimizers.methods.flash.scores import LEAST_SHARE, ranked
from prefect_tune.optimizers.models.path_linear import PathLinear
from prefect_tune.optimizers.search.improvement import log_expected_improvement
from prefect_tune.optimizers.space.configuration import default_configuration
from prefect_tune.optimizers.space.sampling import sample_configuration
from prefect_tune.optimizers.space.vectors import CandidateSpace

SEEN = [5, 0, 1, 2]
LOSSES = [30.0, 22.0, 18.0, 26.0]
SECONDS = [20.0, 5.0, 60.0, 8.0]


def toy_history(seconds: list[float] = SECONDS, pending: tuple[int, ...] = ()) -> History:
    """The worked example of two steps of two and three algorithms."""
    space = counted_space(TOY, 0)
    paths, history = list(space.paths()), History()
    for number, (i, loss, cost) in enumerate(zip(SEEN, LOSSES, seconds, strict=True)):
        query = Query(default_configuration(space, paths[i]))
        history.record(told(number, query, loss, cost))
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


def terms(
    history: History, counts: tuple[int, ...] = TOY, *, is_next_run: bool = True, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of expected improvement and of cost; of many runs unless it is the next one."""
    space = counted_space(counts, 0 if counts == TOY else 1)
    return flash(space, history, **options)._scores.terms(history, is_next_run=is_next_run)


def log_eips(*given: Any, **options: Any) -> np.ndarray:
    log_ei, log_cost = terms(*given, **options)
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
    scores = log_eips(toy_history(), is_next_run=False, variant="paper")
    assert scores == pytest.approx(expected)
    assert ranked(scores, None) == [3, 4, 0, 1, 5, 2]
    phase_two = log_eips(toy_history(), variant="paper")
    assert phase_two == pytest.approx(
        log_expected_improvement(paths @ beta, deviation, 18.0, 100.0) - np.log(log_seconds)
    )


def test_a_path_under_way_is_imagined_to_return_its_mean() -> None:
    paths = one_hot_paths(TOY)
    model = PathLinear.fit(paths[SEEN], np.array(LOSSES))
    for history, known in (
        (toy_history(), model),
        (toy_history(pending=(4,)), model.imagining(paths[4])),
    ):
        mean, deviation = known.mean(paths), known.deviation(paths)
        # The mean deviation counts as long as paths are looked for.
        for xi, is_next_run in ((deviation.mean(), True), (0.0, False)):
            log_ei, _ = terms(history, is_next_run=is_next_run)
            assert log_ei == pytest.approx(log_expected_improvement(mean, deviation, 18.0, xi))


def equal_history(seconds: float) -> History:
    """Four paths of equal loss, one algorithm of the last step taking some seconds."""
    return run_steps(defaults_of(counted_space((2, 2))), {"step1.a1": seconds})


def test_what_is_expected_is_divided_by_seconds_of_a_hundredth_of_the_mean_at_least() -> None:
    found = log_eips(equal_history(9.0), (2, 2))
    # The first step was cached by both paths: 0.1 s and 9 s after loading it in 0.01 s.
    assert found[0] - found[1] == pytest.approx(np.log(9.01 / 0.11), rel=0.1)
    found = log_eips(equal_history(1e6), (2, 2))
    assert found[0] - found[1] == pytest.approx(np.log(2 / LEAST_SHARE), abs=1e-3)


def test_failures_count_as_the_bound_or_the_worst() -> None:
    history = toy_history()
    history.record(told(9, history[0].query, None))
    paths = one_hot_paths(TOY)
    for variant, loss in (("paper", 100.0), ("default", 30.0)):
        has_intercept = variant == "default"
        targets = np.array([*LOSSES, loss])
        model = PathLinear.fit(paths[[*SEEN, 5]], targets, has_intercept=has_intercept)
        expected = log_expected_improvement(model.mean(paths), model.deviation(paths), 18.0)
        log_ei, _ = terms(history, is_next_run=False, variant=variant)
        assert log_ei == pytest.approx(expected)


def test_equal_scores_are_ranked_at_random_given_a_generator() -> None:
    scores = np.array([1.0, 2.0, 1.0 + 1e-13, 0.5])
    assert ranked(scores, None) == [1, 0, 2, 3]
    orders = {tuple(ranked(scores, np.random.default_rng(seed))) for seed in range(20)}
    assert orders == {(1, 0, 2, 3), (1, 2, 0, 3)}


def test_many_runs_are_divided_by_the_logarithm_of_their_seconds_with_nothing_cached() -> None:
    many = log_eips(equal_history(9.0), (2, 2), is_next_run=False)
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


TWO_BY_TWO = counted_space((2, 2))
STEP_SECONDS = {"step0.a0": 1e4, "step0.a1": 8.0, "step1.a0": 0.01, "step1.a1": 2.0}


def tuning(n: int, subspace: dict[str, list[str]] | None = None, **options: Any) -> Flash:
    """A search in its last phase after n random configurations."""
    rng = np.random.default_rng(0)
    drawn = (Query(sample_configuration(TWO_BY_TWO, rng)) for _ in range(n))
    optimizer = flash(TWO_BY_TWO, run_steps(drawn, STEP_SECONDS), **options)
    whole = {step.name: [a.id for a in step.algorithms] for step in TWO_BY_TWO.steps}
    optimizer._decided.subspace = subspace or whole
    return optimizer


def test_no_candidate_is_cheaper_than_a_share_of_a_run() -> None:
    candidates, search = CandidateSpace(TWO_BY_TWO), tuning(8)
    drawn = sample_configuration(TWO_BY_TWO, np.random.default_rng(2), ("a1", "a0"))
    cheap, log_cost = candidates.encode([drawn]), search._log_cost()
    assert log_cost is not None
    cost = log_cost(cheap, candidates.features(cheap))
    typical = search._scores.seconds(None).mean()
    assert cost == pytest.approx([0.5 * np.log(LEAST_SHARE * typical)])


def test_only_the_subspace_is_proposed_though_all_trials_teach() -> None:
    search = tuning(12, {"step0": ["a1"], "step1": ["a0", "a1"]})
    queries = [search._tuned(np.random.default_rng(s)) for s in range(12)]
    assert {query.configuration.path[0] for query in queries} == {"a1"}
    assert not tuning(0, variant="paper")._tuning.settings.is_log
