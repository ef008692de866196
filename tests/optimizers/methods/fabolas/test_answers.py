"""The answer of Fabolas in odd histories and short budgets, and what is said of it."""

from dataclasses import replace
from math import log

import pytest
from subset_worlds.problems import ROWS, Twin, ask_and_tell, configuration, cube, trial
from worlds import finite_space

from prefect_tune.optimizers import (
    Budget,
    Constraint,
    Evaluation,
    Failure,
    FailureKind,
    History,
    Objective,
    Query,
    Space,
    SpaceExhausted,
    Trial,
    make_optimizer,
)
from prefect_tune.optimizers.methods.fabolas.decisions import decisions_of
from prefect_tune.optimizers.methods.fabolas.fabolas import Fabolas
from prefect_tune.optimizers.methods.fabolas.gate import Prediction
from prefect_tune.optimizers.methods.fabolas.sizes import Sizes


def fabolas(space: Space | None = None, objective: Objective = ROWS) -> Fabolas:
    made = make_optimizer("fabolas", space or cube(), 0, objective, {"n_first": 1})
    assert isinstance(made, Fabolas)
    return made


def test_with_half_of_the_time_gone_the_first_design_ends() -> None:
    """Else a short budget would end on small subsets alone."""
    early, late = fabolas(), fabolas()
    for optimizer in (early, late):
        ask_and_tell(optimizer, lambda query: (10.0 + query.subset, 1.0), 4, seconds_left=100.0)
    assert not early.ask(Budget(seconds_spent=40.0, seconds_left=60.0)).is_full
    assert late.ask(Budget(seconds_spent=60.0, seconds_left=5.0)).is_full


def test_where_all_violate_a_constraint_it_goes_on() -> None:
    objective = replace(ROWS, constraints=(Constraint("latency_us", 1.0),))
    optimizer = fabolas(objective=objective)
    for number in range(12):
        query = optimizer.ask(Budget())
        seen = Evaluation(10.0 + number % 5, constraints={"latency_us": 9.0})
        optimizer.tell(Trial(number, query).started().ended(seen))
    assert optimizer.incumbent is None


def test_a_finite_space_is_seen_on_all_rows() -> None:
    optimizer = fabolas(space=finite_space())
    with pytest.raises(SpaceExhausted):
        ask_and_tell(optimizer, lambda query: (len(query.configuration.canonical), 1.0), 60)
    assert {t.query.configuration for t in optimizer.history.complete} == optimizer.history.asked


def test_a_larger_budget_is_confirmed_anew() -> None:
    optimizer, twin = fabolas(), Twin(is_good=True)
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


def test_the_answer_changes_when_what_was_measured_does() -> None:
    objective = replace(ROWS, constraints=(Constraint("latency_us", 1.0),))
    optimizer = fabolas(objective=objective)
    for number in range(8):
        query = optimizer.ask(Budget())
        seen = Evaluation(10.0 + number, constraints={"latency_us": 0.5})
        optimizer.tell(Trial(number, query).started().ended(seen))
    best = optimizer.incumbent
    assert best is not None
    optimizer.measure(best.number, {"latency_us": 9.0})
    assert optimizer.incumbent is not None
    assert optimizer.incumbent.number != best.number


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
    with pytest.raises(ValueError, match="subset_folds must be 0 to 3, all folds; got 7"):
        make_optimizer("fabolas", cube(), 0, replace(ROWS, n_folds=3), {"subset_folds": 7})


def test_full_evaluations_that_exceeded_a_limit_are_told() -> None:
    history = History()
    history.record(trial(0, Query(configuration(0.5), 0.25), 1.0))
    cut = Failure(FailureKind.TIMEOUT, "took more than 10 s")
    history.record(Trial(1, Query(configuration(0.5))).started().failed(cut))
    (unseen, note) = decisions_of(history, Sizes.of(ROWS), {}, is_log=False)["notes"]
    assert "a prediction" in unseen
    assert note.startswith("1 of the full evaluations exceeded a limit of the trial")
