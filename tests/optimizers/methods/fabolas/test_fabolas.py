"""Fabolas, and the methods compared with Fabolas in the paper."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from ConfigSpace import Float, Integer
from simulation import Outcome, Simulation
from subset_worlds import BEST, ROWS, Twin, configuration, cube, position
from worlds import algorithm, ask_and_tell, told

from prefect_tune.optimizers import Budget, Query, Space, SpaceExhausted, Step, make_optimizer
from prefect_tune.optimizers.methods.fabolas.fabolas import Fabolas

GOOD, BAD = Twin(drop=8.0), Twin(is_good=False, drop=8.0)


def fabolas(n_first: int = 1) -> Fabolas:
    made = make_optimizer("fabolas", cube(), 0, ROWS, {"n_first": n_first})
    assert isinstance(made, Fabolas)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("twin", "n", "is_given_up"),
    [(GOOD, 35, False), (BAD, 28, True)],
)
def test_uninformative_subsets_are_abandoned_and_the_optimum_is_still_found(
    twin: Twin, n: int, is_given_up: bool
) -> None:
    optimizer = fabolas(n_first=6)
    for _ in range(n):
        (query,) = ask_and_tell(optimizer, twin, 1)
        is_closed = bool((optimizer.memo or {}).get("closed"))
        assert query.is_full or not is_closed
    assert is_closed == is_given_up
    for configuration_ in optimizer.history.asked:
        shares = [t.query.subset for t in optimizer.history.trials_of(configuration_)]
        assert shares == sorted(set(shares))
    assert len(optimizer.history.complete) >= (5 if is_given_up else 2)
    assert abs(position(optimizer.incumbent.query)[0] - BEST) < (0.06 if is_given_up else 0.03)
    full = [t.number for t in optimizer.history if t.query.is_full]
    assert [int(number) for number in optimizer.memo["full"]] == full


@pytest.mark.slow
def test_finalists_are_confirmed_on_all_rows_at_the_end_of_each_budget():
    optimizer = fabolas(n_first=4)
    for trials in (12, 14):
        Simulation(optimizer, Twin(), trials=trials).run()
        assert len(optimizer.history.asked) == trials
        last = max(t.number for t in optimizer.history if not t.query.is_full)
        confirmed = list(optimizer.history)[last + 1 :]
        assert confirmed
        assert {optimizer.memo["full"][str(t.number)][0] for t in confirmed} == {"confirm"}
        assert optimizer.incumbent == optimizer.history.incumbent


FIRST = {1 / 64: (0.1, 0.42, 0.7, 0.9), 1 / 32: (0.42, 0.1), 1 / 16: (0.42,), 1 / 8: (0.42, 0.5)}
"""Positions by share of the rows, in the first design."""


def after_first() -> Fabolas:
    """Return a method with results of a first design, as if another method had asked for them."""
    optimizer = fabolas()
    for share, x in ((share, x) for share, numbers in FIRST.items() for x in numbers):
        number, query = len(optimizer.history), Query(configuration(x), share)
        optimizer.restore(number, query, None)
        optimizer.tell(told(number, query, (x - 0.4) ** 2 + 0.1, 100 * share))
    optimizer.memo = {"n_first": 0}
    return optimizer


@pytest.mark.parametrize(
    ("budget", "phase"),
    [
        (Budget(), "information per second"),
        (Budget(last_ask_seconds=(200.0,) * 5), "verify"),
        (Budget(seconds_spent=4e3, seconds_left=3e3), "information per second"),
        (Budget(seconds_spent=4e3, seconds_left=2e2), "confirm"),
        (Budget(seconds_spent=4e3, seconds_left=2e3, n_workers=16), "confirm"),
        (Budget(seconds_spent=4e3, seconds_left=8e2, n_workers=4), "information per second"),
        (Budget(seconds_spent=1e1, seconds_left=1.2e2), "confirm"),  # too long for half of the time
        (Budget(trials_left=0), "confirm"),
    ],
)
def test_best_configuration_is_evaluated_on_all_rows_when_due(budget: Budget, phase: str) -> None:
    """A full evaluation is due once subsets and proposals have cost enough, budget permitting."""
    optimizer = after_first()
    query = optimizer.ask(budget)
    assert optimizer.reason is not None
    assert optimizer.reason.phase == phase
    if phase != "information per second":
        assert query == Query(configuration(0.42))


def paper(n_first: int = 4, **of_objective: float) -> Fabolas:
    options = {"variant": "paper", "n_first": n_first}
    made = make_optimizer("fabolas", cube(), 0, replace(ROWS, **of_objective), options)
    assert isinstance(made, Fabolas)
    return made


@pytest.mark.slow
def test_variant_paper_searches_all_numbers_of_rows_on_all_folds_without_full_evaluations() -> None:
    optimizer = paper(n_folds=3)
    queries = ask_and_tell(optimizer, Twin(drop=1.0), 16)
    assert {q.folds for q in queries} == {None}
    rows = np.array([q.subset for q in queries[4:]]) * ROWS.n_rows
    assert rows == pytest.approx(np.round(rows))
    assert len(set(rows)) > 6
    assert rows.min() >= 50
    assert not optimizer.resumes_configurations
    assert optimizer.decisions["confirmations"] == []
    assert sum(size["runs"] for size in optimizer.decisions["sizes"]) == 16


@pytest.mark.slow
def test_variant_paper_takes_the_best_prediction_as_the_incumbent() -> None:
    """The incumbent was not evaluated on all rows, unlike another configuration."""
    optimizer = paper()
    ask_and_tell(optimizer, Twin(), 8)
    number, query = len(optimizer.history), Query(configuration(0.99))
    optimizer.restore(number, query, optimizer.memo)
    optimizer.tell(told(number, query, 0.3, 100.0))
    assert optimizer.history.incumbent is not None
    assert position(optimizer.history.incumbent.query) == (0.99,)
    assert optimizer.incumbent is not None
    assert position(optimizer.incumbent.query) != (0.99,)
    assert optimizer.ask(Budget(seconds_spent=1.0, seconds_left=1e-6))  # whatever the time


def test_only_queries_that_can_end_in_time_are_proposed() -> None:
    query = after_first().ask(Budget(seconds_spent=1.0, seconds_left=30.0))
    assert query.subset <= 1 / 4
    with pytest.raises(SpaceExhausted, match="the budget"):
        after_first().ask(Budget(seconds_spent=1.0, seconds_left=1e-3))


def test_configurations_only_go_to_larger_sizes() -> None:
    space = Space("three", (Step("model", (algorithm("a", Integer("x0", (0, 2))),)),))
    optimizer = make_optimizer("fabolas", space, 0, ROWS, {"n_first": 3})
    ask_and_tell(optimizer, Twin(), 9)
    for known in optimizer.history.asked:
        shares = [trial.query.subset for trial in optimizer.history.trials_of(known)]
        assert shares == sorted(set(shares))


def test_pending_queries_get_imagined_results_and_new_proposals_differ() -> None:
    optimizer = after_first()
    asked = [position(optimizer.ask(Budget()))[0] for _ in range(4)]
    gaps = [abs(a - b) for i, a in enumerate(asked) for b in asked[:i]]
    assert min(gaps) > 0.01


def test_configuration_that_fails_on_all_rows_is_not_the_incumbent() -> None:
    optimizer = after_first()
    query = Query(configuration(0.42))
    optimizer.restore(9, query, None)
    optimizer.tell(told(9, query, None, 100.0))
    optimizer.ask(Budget())
    assert optimizer.incumbent is not None
    assert position(optimizer.incumbent.query)[0] != 0.42


def test_first_design_begins_on_the_smallest_subset_and_promotes_the_best_configurations() -> None:
    def outcome(query: Query) -> Outcome:
        (x,) = position(query)
        return (x if x < 0.3 else 10.0 if x < 0.5 else 50.0), 1.0

    optimizer = make_optimizer("fabolas", cube(), 0, replace(ROWS, lower=0.0), {"n_first": 8})
    queries = ask_and_tell(optimizer, outcome, 11)
    assert [q.subset for q in queries[:9]] == [1 / 64] * 8 + [1 / 32]
    begun = sorted(position(q)[0] for q in queries[:8])
    promoted = [position(q)[0] for q in queries[8:] if q.subset == 1 / 32]
    assert promoted == begun[: len(promoted)]
    assert max(promoted) < 0.3


def test_variant_paper_begins_random_configurations_on_small_subsets_in_turn() -> None:
    models = (algorithm(name, Float("x0", (0.0, 1.0), default=0.5)) for name in "ab")
    two = Space("two", (Step("model", tuple(models)),))
    optimizer = make_optimizer("fabolas", two, 0, ROWS, {"variant": "paper", "n_first": 8})
    queries = ask_and_tell(optimizer, GOOD, 8)
    assert [q.subset for q in queries] == [1 / 64, 1 / 32, 1 / 16, 1 / 8] * 2
    assert len({position(q) for q in queries} - {(0.5,)}) == 8


def late(method: str, outcome: Callable[[Query], Outcome] = GOOD) -> list[Query]:
    """Check that twelve proposals are full evaluations; return proposals after the random start."""
    optimizer = make_optimizer(method, cube(), 0, ROWS)
    queries = ask_and_tell(optimizer, outcome, 12)
    assert all(query.is_full for query in queries)
    assert not optimizer.resumes_configurations
    return queries[6:]


def test_expected_improvement_stays_near_the_best_and_entropy_search_spreads_out():
    """The losses are from `GOOD`; the right end costs e^8 times as much as the left end."""

    def dear(query: Query) -> Outcome:
        return GOOD(query)[0], float(np.exp(8.0 * position(query)[0]))

    by_improvement, by_information = late("ei"), late("es")
    assert np.median([abs(position(q)[0] - BEST) for q in by_improvement]) < 0.05
    spreads = [np.std([position(q)[0] for q in qs]) for qs in (by_improvement, by_information)]
    assert spreads[0] < spreads[1]
    assert late("es", dear) == by_information


@pytest.mark.slow
def test_two_task_search_uses_the_requested_share_and_all_rows() -> None:
    optimizer = make_optimizer("mtbo", cube(), 0, ROWS, {"share": 0.125})
    queries = ask_and_tell(optimizer, Twin(), 14)
    assert {q.subset for q in queries[:5]} == {0.125}
    assert {q.subset for q in queries} == {0.125, 1.0}
    # Where not a row is in the subset, all rows are asked for.
    optimizer = make_optimizer("mtbo", cube(), 0, replace(ROWS, n_rows=20), {"share": 0.01})
    assert all(q.is_full for q in ask_and_tell(optimizer, Twin(), 4))
