"""Fabolas, and the methods that it is compared with."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf, log
from typing import Any

import numpy as np
import pytest
from simulation import Outcome
from subset_worlds import (
    BEST,
    ROWS,
    Twin,
    ask_and_tell,
    configuration,
    cube,
    position,
    trial,
)

from prefect_tune.optimizers import (
    Budget,
    History,
    Objective,
    Optimizer,
    Query,
    Space,
    SpaceExhausted,
    make_optimizer,
)
from prefect_tune.optimizers.methods.fabolas.decisions import Prediction, decisions_of
from prefect_tune.optimizers.methods.fabolas.fabolas import EntropySearch, Fabolas
from prefect_tune.optimizers.methods.fabolas.recipe import Sizes

GOOD, BAD = Twin(drop=8.0), Twin(is_good=False, drop=8.0)


def fabolas(seed=0, *, space=None, objective=ROWS, **options) -> Fabolas:
    given = {"inference": "map", "n_first": 1, **options}
    made = make_optimizer("fabolas", space or cube(), seed, objective, given)
    assert isinstance(made, Fabolas)
    return made


def add(optimizer: Optimizer, query: Query, loss: float | None, seconds: float = 1.0) -> None:
    """Add a trial that another asked for."""
    number = len(optimizer.history)
    optimizer.restore(number, query, None)
    optimizer.tell(trial(number, query, loss, seconds))


def run_to_its_end(optimizer: Optimizer, outcome: Callable[[Query], Outcome], n: int) -> None:
    """Begin n configurations, and go on with them until nothing is left."""
    while True:
        left = max(n - len(optimizer.history.asked), 0)
        try:
            ask_and_tell(optimizer, outcome, 1, trials_left=left)
        except SpaceExhausted:
            return


# The gate, and what full evaluations are for.
def closings(twin: Twin, n: int, **options: Any) -> tuple[Fabolas, list[bool]]:
    """Ask n times; return by ask whether subsets were given up, and check that they then were."""
    optimizer, closed = fabolas(twin.seed, n_first=6, **options), []
    for _ in range(n):
        (query,) = ask_and_tell(optimizer, twin, 1)
        closed.append(bool((optimizer.memo or {}).get("closed")))
        assert query.is_full or not closed[-1]
    return optimizer, closed


@pytest.mark.slow
def test_subsets_that_tell_nothing_are_given_up_and_the_best_is_found_all_the_same() -> None:
    # Of seeds 0 to 4 all but one close, after 17 to 20 asks; two of three leave room for others.
    runs = [closings(replace(BAD, seed=seed), 28) for seed in (0, 1, 2)]
    closing = [optimizer for optimizer, closed in runs if any(closed)]
    assert len(closing) >= 2
    for optimizer in closing:
        assert len(optimizer.history.complete) >= 5
        assert abs(position(optimizer.incumbent.query)[0] - BEST) < 0.06


@pytest.fixture(scope="module")
def good_run() -> tuple[Fabolas, list[bool]]:
    return closings(GOOD, 35)


@pytest.mark.slow
def test_subsets_that_tell_are_not_given_up(good_run: tuple[Fabolas, list[bool]]) -> None:
    optimizer, closed = good_run
    assert not any(closed)
    assert len(optimizer.history.complete) >= 2
    assert abs(position(optimizer.incumbent.query)[0] - BEST) < 0.03


def full_evaluations_predicted(errors: list[float]) -> Fabolas:
    """Full evaluations that came out so far, in deviations, from what was predicted of them."""
    optimizer = fabolas()
    ask_and_tell(optimizer, GOOD, 6)
    rng, predictions = np.random.default_rng(0), dict[str, list[Any]]()
    for error in (0.0, *errors):
        query = Query(configuration(float(rng.random())))
        loss, seconds = GOOD(query)
        predictions[str(len(optimizer.history))] = ["verify", float(loss or 0) + 0.02 * error, 0.02]
        add(optimizer, query, loss, seconds)
    optimizer.memo = {**(optimizer.memo or {}), "full": predictions}
    return optimizer


@pytest.mark.slow
def test_it_closes_on_misses_and_opens_again_on_predictions_that_came_true() -> None:
    misses, hits = [30.0] * 4, [0.5] * 6
    verdicts = []
    for errors in (hits, misses, misses + hits):
        optimizer = full_evaluations_predicted(errors)
        queries = [optimizer.ask(Budget()) for _ in range(3)]
        verdicts.append(optimizer.memo is not None and bool(optimizer.memo["closed"]))
        assert all(q.is_full for q in queries) or not verdicts[-1]
    assert verdicts == [False, True, False]


def test_full_evaluations_are_asked_for_with_what_is_predicted_of_them(good_run) -> None:
    optimizer, _ = good_run
    full = [t.number for t in optimizer.history if t.query.is_full]
    assert [int(number) for number in optimizer.memo["full"]] == full
    for number, (reason, mean, deviation, *_) in optimizer.memo["full"].items():
        loss = optimizer.history[int(number)].loss
        assert loss is not None
        assert reason in ("verify", "search", "improve")
        assert abs(loss - mean) < 6 * deviation


# The answer.
@pytest.mark.slow
def test_before_anything_is_confirmed_the_answer_is_the_best_by_prediction() -> None:
    optimizer = fabolas(n_first=6)
    ask_and_tell(optimizer, Twin(), 24)
    assert not optimizer.history.complete
    add(optimizer, Query(configuration(0.75), 0.5), 0.15)  # on most rows
    add(optimizer, Query(configuration(0.9), 1 / 256), 0.0)  # of the lowest loss, by luck
    assert abs(position(optimizer.incumbent.query)[0] - BEST) < 0.15  # and far from those two


@pytest.mark.slow
def test_at_the_end_the_best_are_confirmed_and_the_best_of_the_full_ones_is_the_answer() -> None:
    optimizer = fabolas(n_first=4, verify_every=0)
    run_to_its_end(optimizer, Twin(), 12)
    assert len(optimizer.history.asked) == 12
    confirmed = list(optimizer.history)[-3:]
    assert all(t.query.is_full for t in confirmed)
    assert {v[0] for v in optimizer.memo["full"].values()} == {"confirm"}
    assert optimizer.incumbent == min(optimizer.history.complete, key=lambda t: t.loss or inf)


def test_no_more_are_confirmed_than_are_to_be_however_they_disappoint() -> None:
    def outcome(query: Query) -> Outcome:
        loss, seconds = Twin()(query)
        return (loss or 0.0) + 5.0 * query.is_full, seconds

    optimizer = fabolas(n_first=2, verify_every=0, n_confirmed=1, gate=False)
    run_to_its_end(optimizer, outcome, 6)
    assert len(optimizer.history.complete) == 1
    # Others are predicted to be better than what came out of it, and were not confirmed.
    assert optimizer.incumbent == optimizer.history.complete[0]
    assert not fabolas(n_confirmed=0).can_go_on


@pytest.mark.slow
def test_families_of_subsets_are_given_in_turn_and_subsets_are_of_one_fold() -> None:
    optimizer = fabolas(objective=replace(ROWS, n_folds=3), subset_draws=3)
    queries = ask_and_tell(optimizer, GOOD, 12)
    parts = [q for q in queries if not q.is_full]
    assert [q.subset_draw for q in parts[:6]] == [0, 1, 2, 0, 1, 2]
    assert {q.folds for q in parts} == {1}
    assert {q.folds for q in queries if q.is_full} <= {None}


# What may come (sheet, T17).
def constant(query: Query) -> Outcome:  # noqa: ARG001
    return 7.0, 1.0


def free(query: Query) -> Outcome:
    return GOOD(query)[0], 0.0


def perfect(query: Query) -> Outcome:  # noqa: ARG001
    return 0.0, 1.0


def with_an_outlier(query: Query) -> Outcome:
    loss, seconds = GOOD(query)
    return (1e8 if position(query)[0] > 0.8 else loss), seconds


def tiny(query: Query) -> Outcome:
    loss, seconds = GOOD(query)
    return 1e-12 * (loss or 0.0), seconds


PERCENT = replace(ROWS, metric="error", unit="percent", lower=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("outcome", [constant, free, perfect, with_an_outlier, tiny])
@pytest.mark.parametrize("objective", [ROWS, PERCENT], ids=["raw", "percent"])
def test_odd_losses_and_seconds_are_learned_from(objective, outcome) -> None:
    optimizer = fabolas(objective=objective)
    for query in ask_and_tell(optimizer, outcome, 13, last_ask_seconds=(30.0,)):
        assert 0 <= position(query)[0] <= 1
        assert query.subset in optimizer.sizes.shares
    assert "NaN" not in json.dumps(optimizer.memo)
    assert optimizer.incumbent is not None


@pytest.mark.parametrize("n_told", [0, 1, 2])
def test_with_hardly_a_result_it_asks_on(n_told: int) -> None:
    optimizer = fabolas()
    queries = [optimizer.ask(Budget()) for _ in range(3)]
    for number, query in enumerate(queries[:n_told]):
        optimizer.tell(trial(number, query, 1.0))
    more = [optimizer.ask(Budget()) for _ in range(4)]
    assert all(0 <= position(q)[0] <= 1 for q in more)


# The published method.
def test_the_papers_variant_follows_the_paper() -> None:
    recipe = fabolas(variant="paper").recipe
    assert recipe.acquisition == "divergence_per_cost"
    s = np.array([0.0, 0.25, 1.0])
    for basis in (recipe.log_basis, recipe.raw_basis):
        np.testing.assert_allclose(basis.functions(s), np.column_stack([s**0, (1 - s) ** 2]))
        assert not any(basis.trend)
    assert (recipe.kappa, recipe.verify_every, recipe.has_gate) == (0.0, None, False)
    assert not recipe.has_falling_noise
    assert not recipe.is_log


@pytest.mark.slow
def test_the_paper_s_method_begins_scattered_and_asks_for_all_rows_at_the_end_alone() -> None:
    optimizer = fabolas(variant="paper", n_first=10)
    slow = {"last_ask_seconds": (1e4,)}
    queries = ask_and_tell(optimizer, Twin(), 16, trials_left=9, **slow)
    assert len({q.configuration for q in queries[:10]}) == 10
    assert {q.subset for q in queries[:10]} == {1 / 64, 1 / 32, 1 / 16, 1 / 8}
    confirmed = ask_and_tell(optimizer, Twin(), 3, trials_left=0)
    assert all(q.is_full for q in confirmed)
    assert {v[0] for v in optimizer.memo["full"].values()} <= {"confirm", "search"}


def fabolas_of_one(space: Space | None = None, objective: Objective = ROWS) -> Fabolas:
    made = make_optimizer("fabolas", space or cube(), 0, objective, {"n_first": 1})
    assert isinstance(made, Fabolas)
    return made


def test_with_half_of_the_time_gone_the_first_design_ends() -> None:
    """Else a short budget would end on small subsets alone."""
    early, late = fabolas_of_one(), fabolas_of_one()
    for optimizer in (early, late):
        ask_and_tell(optimizer, lambda query: (10.0 + query.subset, 1.0), 4, seconds_left=100.0)
    assert not early.ask(Budget(seconds_spent=40.0, seconds_left=60.0)).is_full
    assert late.ask(Budget(seconds_spent=60.0, seconds_left=5.0)).is_full


@pytest.mark.slow
def test_a_larger_budget_is_confirmed_anew() -> None:
    optimizer, twin = fabolas_of_one(), Twin(is_good=True)
    for trials in (12, 18):
        while True:
            left = trials - len(optimizer.history.asked)
            try:
                ask_and_tell(optimizer, twin, 1, trials_left=max(left, 0))
            except SpaceExhausted:
                break
        last = max(t.number for t in optimizer.history if t.query.subset < 1)
        assert any(t.query.is_full and t.number > last for t in optimizer.history)
        assert optimizer.incumbent == optimizer.history.incumbent


def test_confirmations_that_disagree_do_so_in_the_unit_that_was_learned() -> None:
    memo = {"full": {"0": Prediction("confirm", log(2.0), 0.6).to_json()}}
    disagree = []
    for loss in (0.1, 0.3, 2.0, 4.5, 9.0):
        history = History()
        history.record(trial(0, Query(configuration(0.5)), loss))
        (said,) = decisions_of(history, Sizes.of(ROWS), memo, is_log=True)["confirmations"]
        disagree.append(said["disagrees"])
    assert disagree == [True, True, False, False, True]


def test_more_folds_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match="subset_folds"):
        make_optimizer("fabolas", cube(), 0, replace(ROWS, n_folds=3), {"subset_folds": 7})


def test_it_asks_for_full_evaluations_where_improvement_is_expected() -> None:
    optimizer = make_optimizer("ei", cube(), 0, ROWS, {"inference": "map"})
    queries = ask_and_tell(optimizer, Twin(), 14)
    assert all(q.is_full for q in queries)
    late = [abs(position(q)[0] - BEST) for q in queries[8:]]
    assert np.median(late) < 0.05  # 0.25 if they were anywhere
    assert optimizer.incumbent == optimizer.history.incumbent
    assert not optimizer.can_go_on


def queries_of(factor: float) -> list[Query]:
    """What is asked for where those on the right cost e^factor of those on the left."""
    optimizer = make_optimizer("es", cube(), 0, ROWS, {"inference": "map"})

    def outcome(query: Query) -> tuple[float | None, float]:
        return Twin()(query)[0], float(np.exp(factor * position(query)[0]))

    return ask_and_tell(optimizer, outcome, 10)


def test_it_asks_for_full_evaluations_alone_and_cost_does_not_matter() -> None:
    queries = queries_of(0.0)
    assert all(q.is_full for q in queries)
    assert len({q.configuration for q in queries}) == len(queries)
    assert queries_of(8.0) == queries


def test_it_goes_by_information_and_not_by_improvement() -> None:
    made = make_optimizer("es", cube(), 0, ROWS, {"inference": "map"})
    assert isinstance(made, EntropySearch)
    assert made.recipe.acquisition == "gain"
    assert made.sizes.is_single
    by_gain = queries_of(0.0)
    by_improvement = ask_and_tell(
        make_optimizer("ei", cube(), 0, ROWS, {"inference": "map"}), Twin(), 10
    )
    assert by_gain[:5] == by_improvement[:5]  # the first ones are random
    assert by_gain[5:] != by_improvement[5:]
    # Improvement is sought near the best, information to both sides of it.
    spread = [np.std([position(q)[0] for q in qs[6:]]) for qs in (by_gain, by_improvement)]
    assert spread[0] > spread[1]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.25, 0.125])
def test_it_begins_on_the_subset_and_asks_for_that_and_all_rows_alone(share: float) -> None:
    optimizer = make_optimizer("mtbo", cube(), 0, ROWS, {"inference": "map", "share": share})
    queries = ask_and_tell(optimizer, Twin(), 16)
    assert {q.subset for q in queries[:5]} == {share}
    assert {q.subset for q in queries} == {share, 1.0}


def test_without_a_row_in_the_subset_all_rows_are_asked_for() -> None:
    options = {"inference": "map", "share": 0.01}
    optimizer = make_optimizer("mtbo", cube(), 0, replace(ROWS, n_rows=20), options)
    assert all(q.is_full for q in ask_and_tell(optimizer, Twin(), 8))
    assert not optimizer.can_go_on
