"""Fabolas, and the methods that it is compared with."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf
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
from worlds import mixed_space

from prefect_tune.optimizers import (
    Budget,
    Objective,
    Optimizer,
    Query,
    Space,
    SpaceExhausted,
    make_optimizer,
)
from prefect_tune.optimizers.methods.fabolas.fabolas import EntropySearch, Fabolas
from prefect_tune.optimizers.methods.fabolas.subsets import PAPER_LOSS
from prefect_tune.optimizers.space.configuration import default_configuration

GOOD, BAD = Twin(drop=8.0), Twin(is_good=False, drop=8.0)


def fabolas(seed=0, *, space=None, objective=ROWS, **options) -> Fabolas:
    given = {"n_first": 1, **options}
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
    # Of seeds 0 to 4 all close, after 14 to 25 asks.
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
    optimizer = fabolas(n_first=4)
    run_to_its_end(optimizer, Twin(), 12)
    assert len(optimizer.history.asked) == 12
    confirmed = list(optimizer.history)[-3:]
    assert all(t.query.is_full for t in confirmed)
    assert {v[0] for v in optimizer.memo["full"].values()} == {"confirm"}
    assert optimizer.incumbent == min(optimizer.history.complete, key=lambda t: t.loss or inf)


def after(*results: tuple[float, float, float | None, float], **options: Any) -> Fabolas:
    """A method after its first design: results of another, and what it has been asked."""
    optimizer = fabolas(**options)
    for x, share, loss, seconds in results:
        add(optimizer, Query(configuration(x), share), loss, seconds)
    optimizer.memo = {"n_first": 0}
    return optimizer


FIRST = [
    *((x, 1 / 64, (x - 0.4) ** 2 + 0.1, 100 / 64) for x in (0.1, 0.42, 0.7, 0.9)),
    *((x, 1 / 32, (x - 0.4) ** 2 + 0.1, 100 / 32) for x in (0.42, 0.1)),
    *((x, 1 / 16, (x - 0.4) ** 2 + 0.1, 100 / 16) for x in (0.42,)),
    *((x, 1 / 8, (x - 0.4) ** 2 + 0.1, 100 / 8) for x in (0.42, 0.5)),
]


@pytest.mark.parametrize(
    ("budget", "phase"),
    [
        (Budget(), "information per second"),
        (Budget(last_ask_seconds=(200.0,) * 5), "verify"),
        (Budget(seconds_spent=4e3, seconds_left=3e3), "information per second"),
        (Budget(seconds_spent=4e3, seconds_left=2e2), "confirm"),
        (Budget(seconds_spent=4e3, seconds_left=2e3, n_workers=16), "confirm"),
        (Budget(trials_left=0), "confirm"),
    ],
)
def test_the_best_is_evaluated_on_all_rows_if_that_is_due(budget: Budget, phase: str) -> None:
    """Once subsets and asks have cost enough, and for as long as the rest of the budget lasts."""
    optimizer = after(*FIRST)
    query = optimizer.ask(budget)
    assert optimizer.reason is not None
    assert optimizer.reason.phase == phase
    if phase != "information per second":
        assert query == Query(configuration(0.42))


def test_nothing_is_asked_for_that_cannot_end_in_time() -> None:
    query = after(*FIRST).ask(Budget(seconds_spent=1.0, seconds_left=30.0))
    assert query.subset <= 1 / 4
    with pytest.raises(SpaceExhausted, match="the budget"):
        after(*FIRST).ask(Budget(seconds_spent=1.0, seconds_left=1e-3))


def test_configurations_only_go_to_larger_sizes(good_run) -> None:
    optimizer, _ = good_run
    for configuration_ in optimizer.history.asked:
        shares = [t.query.subset for t in optimizer.history.trials_of(configuration_)]
        assert shares == sorted(set(shares))


def test_pending_queries_are_imagined() -> None:
    optimizer = after(*FIRST)
    asked = [position(optimizer.ask(Budget()))[0] for _ in range(4)]
    gaps = [abs(a - b) for i, a in enumerate(asked) for b in asked[:i]]
    assert min(gaps) > 0.01


def test_a_configuration_that_fails_on_all_rows_is_not_the_answer() -> None:
    optimizer = after(*FIRST, (0.42, 1.0, None, 100.0))
    optimizer.ask(Budget())
    assert optimizer.incumbent is not None
    assert position(optimizer.incumbent.query)[0] != 0.42


def test_the_first_design_promotes_the_best_half_but_nothing_as_bad_as_chance() -> None:
    def outcome(query: Query) -> Outcome:
        (x,) = position(query)
        return (x if x < 0.5 else 50.0), 1.0

    optimizer = fabolas(n_first=8)
    queries = ask_and_tell(optimizer, outcome, 11)
    assert [q.subset for q in queries[:9]] == [1 / 64] * 8 + [1 / 32]
    begun = sorted(position(q)[0] for q in queries[:8])
    promoted = [position(q)[0] for q in queries[8:] if q.subset == 1 / 32]
    assert promoted == begun[: len(promoted)]
    assert max(promoted) < 0.5


def test_each_model_begins_with_its_defaults_and_nothing_before_it_where_that_can_run() -> None:
    space = mixed_space()
    optimizer = fabolas(space=space, n_first=6)
    asked = [optimizer.ask(Budget()).configuration for _ in range(6)]
    plain = {default_configuration(space, ("none", model)) for model in ("tree", "bayes")}
    assert plain <= set(asked[:3])  # the other one needs something before it
    assert len(set(asked)) == 6


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
    strategy = fabolas(variant="paper").strategy
    assert strategy.acquisition == "divergence_per_cost"
    assert strategy.basis is PAPER_LOSS
    assert strategy.is_published
    assert strategy.is_drawn
    assert not strategy.is_log
    assert not strategy.one_fold_to


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
    assert late.ask(Budget(seconds_spent=60.0, seconds_left=4.0)).is_full


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


def test_it_asks_for_full_evaluations_where_improvement_is_expected() -> None:
    optimizer = make_optimizer("ei", cube(), 0, ROWS)
    queries = ask_and_tell(optimizer, Twin(), 14)
    assert all(q.is_full for q in queries)
    late = [abs(position(q)[0] - BEST) for q in queries[8:]]
    assert np.median(late) < 0.05  # 0.25 if they were anywhere
    assert optimizer.incumbent == optimizer.history.incumbent
    assert not optimizer.resumes_configurations


def queries_of(factor: float) -> list[Query]:
    """What is asked for where those on the right cost e^factor of those on the left."""
    optimizer = make_optimizer("es", cube(), 0, ROWS)

    def outcome(query: Query) -> tuple[float | None, float]:
        return Twin()(query)[0], float(np.exp(factor * position(query)[0]))

    return ask_and_tell(optimizer, outcome, 10)


def test_it_asks_for_full_evaluations_alone_and_cost_does_not_matter() -> None:
    queries = queries_of(0.0)
    assert all(q.is_full for q in queries)
    assert len({q.configuration for q in queries}) == len(queries)
    assert queries_of(8.0) == queries


def test_it_goes_by_information_and_not_by_improvement() -> None:
    made = make_optimizer("es", cube(), 0, ROWS)
    assert isinstance(made, EntropySearch)
    assert made.strategy.acquisition == "gain"
    assert made.sizes.is_single
    by_gain = queries_of(0.0)
    by_improvement = ask_and_tell(make_optimizer("ei", cube(), 0, ROWS), Twin(), 10)
    assert by_gain[:5] == by_improvement[:5]  # the first ones are random
    assert by_gain[5:] != by_improvement[5:]
    # Improvement is sought near the best, information to both sides of it.
    spread = [np.std([position(q)[0] for q in qs[6:]]) for qs in (by_gain, by_improvement)]
    assert spread[0] > spread[1]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.25, 0.125])
def test_it_begins_on_the_subset_and_asks_for_that_and_all_rows_alone(share: float) -> None:
    optimizer = make_optimizer("mtbo", cube(), 0, ROWS, {"share": share})
    queries = ask_and_tell(optimizer, Twin(), 16)
    assert {q.subset for q in queries[:5]} == {share}
    assert {q.subset for q in queries} == {share, 1.0}


def test_without_a_row_in_the_subset_all_rows_are_asked_for() -> None:
    options = {"share": 0.01}
    optimizer = make_optimizer("mtbo", cube(), 0, replace(ROWS, n_rows=20), options)
    assert all(q.is_full for q in ask_and_tell(optimizer, Twin(), 8))
    assert not optimizer.resumes_configurations
